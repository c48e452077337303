package control

import (
	"testing"

	"github.com/seaofsimulation/sos/servicetest"
)

func TestService(t *testing.T) {
	servicetest.Run(t, func(t *testing.T) servicetest.Env {
		return servicetest.Env{Service: newRig(t).Plane, Image: testImage}
	})
}
