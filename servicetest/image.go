package servicetest

import (
	"slices"
	"strings"

	"github.com/seaofsimulation/sos"
)

func images(s *suite) {
	img, err := s.Service.GetImage(s.ctx, s.Image)
	if err != nil || !strings.HasPrefix(img.Digest, "sha256:") || !img.HasBash {
		s.Fatalf("image %+v, %v", img, err)
	}
	l, err := s.Service.ListImages(s.ctx)
	if err != nil || !slices.ContainsFunc(l, func(i sos.Image) bool { return i.Digest == img.Digest }) {
		s.Errorf("images %+v, %v", l, err)
	}
	_, err = s.Service.GetImage(s.ctx, "no-such-image:none")
	s.fails("an unknown image", err, sos.CodeNotFound, "")
	s.fails("removing an unknown image", s.Service.RemoveImage(s.ctx, "no-such-image:none"), sos.CodeNotFound, "")
	_, err = s.Service.ImportImage(s.ctx, strings.NewReader("this is no archive"), "x:y", nil)
	if err == nil {
		s.Error("imported what is no archive")
	}
	id := s.started()
	if got := s.get(id).ImageDigest; got != img.Digest {
		s.Errorf("the sandbox runs %s, the image is %s", got, img.Digest)
	}
	s.fails("removing an image in use", s.Service.RemoveImage(s.ctx, img.Digest), sos.CodeConflict, "")
	s.want(id, "echo still", "still", 0)
}

func info(s *suite) {
	i, err := s.Service.Info(s.ctx)
	if err != nil || !i.Healthy || i.Driver == "" || i.MaxSandboxes < 1 {
		s.Errorf("info %+v, %v", i, err)
	}
	s.started()
	j, err := s.Service.Info(s.ctx)
	if err != nil || j.Running < 1 {
		s.Errorf("with a sandbox running: %+v, %v", j, err)
	}
}
