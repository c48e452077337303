package fake_test

import (
	"testing"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
	"github.com/seaofsimulation/sos/internal/driver/drivertest"
	"github.com/seaofsimulation/sos/internal/driver/fake"
)

func spec(digest string) driver.Spec {
	return driver.Spec{Image: driver.Image{Digest: digest}, Hostname: "box", Limits: sos.DefaultLimits}
}

func open(t *testing.T) *fake.Driver {
	d := fake.New()
	t.Cleanup(d.Close)
	return d
}

func TestDriver(t *testing.T) {
	broken := spec(fake.BrokenImage)
	drivertest.Run(t, func(t *testing.T) driver.Driver { return open(t) }, drivertest.Env{
		Spec:   spec("sha256:any"),
		Broken: &broken,
		KillGuest: func(t testing.TB, d driver.Driver, id string) {
			d.(*fake.Driver).Crash(id, driver.Exit{Known: true, Signal: 9})
		},
	})
}
