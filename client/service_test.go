package client_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/seaofsimulation/sos/client"
	"github.com/seaofsimulation/sos/internal/control"
	"github.com/seaofsimulation/sos/internal/driver/fake"
	"github.com/seaofsimulation/sos/internal/image"
	"github.com/seaofsimulation/sos/internal/journal"
	"github.com/seaofsimulation/sos/internal/server"
	"github.com/seaofsimulation/sos/internal/store"
	"github.com/seaofsimulation/sos/servicetest"
)

// TestService holds the client, over HTTP, to what holds for the control plane.
func TestService(t *testing.T) {
	servicetest.Run(t, func(t *testing.T) servicetest.Env {
		ts := httptest.NewServer(server.New(server.Config{Service: plane(t), Log: slog.New(slog.DiscardHandler)}).Handler())
		t.Cleanup(ts.Close)
		c := client.New(client.Config{URL: ts.URL})
		t.Cleanup(c.Close)
		return servicetest.Env{Service: c, Image: "test:latest"}
	})
}

// plane is a control plane on the driver in memory, with an image.
func plane(t *testing.T) *control.Plane {
	t.Helper()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	db, err := store.Open(t.Context(), filepath.Join(dir, "sos.db"))
	must(err)
	j, err := journal.Open(filepath.Join(dir, "journal"), journal.Options{})
	must(err)
	var p *control.Plane
	images, err := image.Open(image.Config{Dir: filepath.Join(dir, "images"), Users: func(d string) []string { return p.ImageUsers(d) }})
	must(err)
	driver := fake.New()
	p, err = control.New(control.Config{Driver: driver, Store: db, Journal: j, Images: images, Log: slog.New(slog.DiscardHandler),
		Version: "test", Instance: "fakefake", StopGrace: 200 * time.Millisecond, WatchInterval: 20 * time.Millisecond, ReconcileInterval: 100 * time.Millisecond})
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
		driver.Close()
		if err := errors.Join(db.Close(), j.Close(), images.Close()); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-p.Ready():
	case <-time.After(time.Minute):
		t.Fatal("the control plane is not ready")
	}
	var rootfs bytes.Buffer
	w := tar.NewWriter(&rootfs)
	for _, name := range []string{"bin/bash", "bin/sh"} {
		must(w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: 4, Typeflag: tar.TypeReg}))
		_, err := w.Write([]byte("#!\n\n"))
		must(err)
	}
	must(w.Close())
	_, err = p.ImportImage(t.Context(), &rootfs, "test:latest", nil)
	must(err)
	return p
}
