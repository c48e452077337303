package app

import (
	"context"
	"io"

	"github.com/seaofsimulation/sos"
	"github.com/seaofsimulation/sos/internal/driver"
	"github.com/seaofsimulation/sos/internal/driver/native"
)

// noImages stands for an image store on a filesystem that cannot hold one: every
// call says why.
type noImages struct{ err error }

func (n noImages) List(context.Context) ([]sos.Image, error)      { return nil, n.err }
func (n noImages) Get(context.Context, string) (sos.Image, error) { return sos.Image{}, n.err }
func (n noImages) Remove(context.Context, string) error           { return n.err }
func (n noImages) LayerDirs(sos.Image) ([]string, error)          { return nil, n.err }
func (n noImages) Pull(context.Context, string, func(sos.Progress)) (sos.Image, error) {
	return sos.Image{}, n.err
}

func (n noImages) Resolve(context.Context, string, func(sos.Progress)) (sos.Image, error) {
	return sos.Image{}, n.err
}

func (n noImages) Import(context.Context, io.Reader, string, func(sos.Progress)) (sos.Image, error) {
	return sos.Image{}, n.err
}

// sickDriver is the native driver with one more failed check.
type sickDriver struct {
	*native.Driver
	check sos.Check
}

func (s sickDriver) Info(ctx context.Context) driver.Info {
	i := s.Driver.Info(ctx)
	i.Checks = append(i.Checks, s.check)
	return i
}
