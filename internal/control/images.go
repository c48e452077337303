package control

import (
	"context"
	"io"

	"github.com/seaofsimulation/sos"
)

// ListImages implements sos.Service.
func (p *Plane) ListImages(ctx context.Context) ([]sos.Image, error) {
	return p.cfg.Images.List(ctx)
}

// GetImage implements sos.Service.
func (p *Plane) GetImage(ctx context.Context, ref string) (sos.Image, error) {
	return p.cfg.Images.Get(ctx, ref)
}

// PullImage implements sos.Service.
func (p *Plane) PullImage(ctx context.Context, ref string, progress func(sos.Progress)) (sos.Image, error) {
	return p.cfg.Images.Pull(ctx, ref, progress)
}

// ImportImage implements sos.Service.
func (p *Plane) ImportImage(ctx context.Context, r io.Reader, name string, progress func(sos.Progress)) (sos.Image, error) {
	return p.cfg.Images.Import(ctx, r, name, progress)
}

// RemoveImage implements sos.Service.
func (p *Plane) RemoveImage(ctx context.Context, ref string) error {
	if err := p.await(ctx); err != nil { // before that nobody knows what is in use
		return err
	}
	return p.cfg.Images.Remove(ctx, ref)
}

// ImageUsers names the sandboxes that need an image: those that run from it and
// those whose files lie over it. It is for the image store.
func (p *Plane) ImageUsers(digest string) []string {
	var list []string
	for _, b := range p.all() {
		b.mu.Lock()
		if b.exists && (b.digest == digest || b.row.ImageDigest == digest) {
			list = append(list, b.id)
		}
		b.mu.Unlock()
	}
	return list
}

// ImageInUse says whether any sandbox needs an image.
func (p *Plane) ImageInUse(digest string) bool { return len(p.ImageUsers(digest)) > 0 }

// Info implements sos.Service.
func (p *Plane) Info(ctx context.Context) (sos.Info, error) {
	d := p.cfg.Driver.Info(ctx)
	held, queued := p.admission.counts()
	i := sos.Info{Version: p.cfg.Version, Commit: p.cfg.Commit, Instance: p.cfg.Instance, Healthy: d.Healthy(), Driver: d.Name,
		Checks: d.Checks, MaxSandboxes: p.cfg.MaxSandboxes, Running: held, Queued: queued}
	if err := p.diskLow(); err != nil {
		i.Healthy = false
		i.Checks = append(i.Checks, sos.Check{Name: "disk", Message: sos.ErrorMessage(err), Fix: "make room in the data directory"})
	}
	select {
	case <-p.ready:
	default:
		i.Healthy = false
		i.Checks = append(i.Checks, sos.Check{Name: "recovery", Message: "the server is still taking over its sandboxes"})
	}
	return i, nil
}
