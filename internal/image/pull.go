package image

import (
	"context"
	"io"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sync/errgroup"

	"github.com/seaofsimulation/sos"
)

// Pull fetches an image from its registry, whether it is here or not; layers that
// are here are not fetched again. Concurrent pulls of one name are one pull: each
// caller may leave, and only when all have left does it stop. progress, which may
// be nil, is called in the caller's goroutine.
//
// Errors are CodeImageFailed with the cause and what to do about it, CodeInvalid
// for a name that is none, CodeCanceled when ctx ended.
func (s *Store) Pull(ctx context.Context, ref string, progress func(sos.Progress)) (sos.Image, error) {
	r, err := parseReference(ref)
	if err != nil {
		return sos.Image{}, err
	}
	return s.pulls.do(ctx, s.base, r.String(), progress, func(ctx context.Context, report func(sos.Progress)) (sos.Image, error) {
		img, err := s.pull(ctx, r, report)
		if err != nil {
			return img, s.pullError(ctx, r, err)
		}
		report(sos.Progress{Stage: "done", Message: Familiar(r.String())})
		return img, nil
	})
}

// remoteRepo is a repository with a client that has its credentials.
type remoteRepo struct {
	repo   name.Repository
	scheme string
	client *http.Client
	rt     http.RoundTripper
}

func (s *Store) pull(ctx context.Context, r reference, report func(sos.Progress)) (sos.Image, error) {
	report(sos.Progress{Stage: "resolve", Message: Familiar(r.String())})
	rr, err := s.dial(ctx, r)
	if err != nil {
		return sos.Image{}, err
	}
	m, raw, index, err := s.fetchManifest(ctx, rr, r)
	if err != nil {
		return sos.Image{}, err
	}
	config, err := s.fetchConfig(ctx, rr, *m.Config)
	if err != nil {
		return sos.Image{}, err
	}
	c, err := s.parseConfig(config)
	if err != nil {
		return sos.Image{}, err
	}
	diffs := c.RootFS.DiffIDs
	if len(diffs) != len(m.Layers) {
		return sos.Image{}, failed("", "the image's configuration has %d layers, its manifest %d", len(diffs), len(m.Layers))
	}
	chains := chainIDs(diffs)
	defer s.lease(chains)()
	plan := make([]layerSource, len(diffs))
	for i := range diffs {
		plan[i] = layerSource{diffID: diffs[i], chainID: chains[i], digest: m.Layers[i].Digest,
			open: func(ctx context.Context, report func(sos.Progress)) (io.ReadCloser, error) {
				f, err := s.download(ctx, rr, m.Layers[i], report)
				if err != nil {
					return nil, s.pullError(ctx, r, err)
				}
				return f, nil
			}}
	}
	g, gctx := errgroup.WithContext(ctx)
	for i := range plan {
		g.Go(func() error {
			_, err := s.ensureLayer(gctx, plan, i, report)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return sos.Image{}, err
	}
	img, err := s.describe(c)
	if err != nil {
		return sos.Image{}, err
	}
	return s.add(candidate{manifest: raw, config: config, index: index, names: []string{r.String()}, image: img})
}

// dial finds out how the registry wants to be spoken to and gets a token.
func (s *Store) dial(ctx context.Context, r reference) (*remoteRepo, error) {
	repo, err := name.NewRepository(r.domain+"/"+r.path, name.WeakValidation)
	if err != nil {
		return nil, failed("", "%q is not a name that registries take", Familiar(r.String()))
	}
	if s.mayBePlain(repo.RegistryStr()) {
		repo, err = name.NewRepository(r.domain+"/"+r.path, name.WeakValidation, name.Insecure)
		if err != nil {
			return nil, err
		}
	}
	auth, err := authn.Resolve(ctx, s.cfg.Keychain, repo)
	if err != nil {
		return nil, &sos.Error{Code: sos.CodeImageFailed, Message: "the credentials for " + repo.RegistryStr() + " cannot be read",
			Fix: "look at the server's Docker configuration (DOCKER_CONFIG) and its credential helper", Cause: err}
	}
	rt, err := transport.NewWithContext(ctx, repo.Registry, auth, s.http, []string{repo.Scope(transport.PullScope)})
	if err != nil {
		return nil, err
	}
	return &remoteRepo{repo: repo, scheme: repo.Scheme(), rt: rt, client: &http.Client{Transport: rt, CheckRedirect: s.checkRedirect}}, nil
}

// fetchManifest gives the manifest for this host's platform, and the digest of
// the index that it was chosen from, if one was.
func (s *Store) fetchManifest(ctx context.Context, rr *remoteRepo, r reference) (m manifest, raw []byte, index string, err error) {
	var ref name.Reference = rr.repo.Tag(r.tag)
	if r.digest != "" {
		ref = rr.repo.Digest(r.digest)
	}
	for range 3 {
		d, err := remote.Get(ref, remote.WithContext(ctx), remote.WithTransport(rr.rt))
		if err != nil {
			return m, nil, "", err
		}
		if m, err = parseManifest(d.Manifest); err != nil {
			return m, nil, "", err
		}
		if !m.isIndex() {
			return m, d.Manifest, index, nil
		}
		if index == "" {
			index = d.Digest.String()
		}
		child, err := choose(m.Manifests, s.cfg.Arch)
		if err != nil {
			return m, nil, "", err
		}
		ref = rr.repo.Digest(child.Digest)
	}
	return m, nil, "", failed("", "the image's indexes are nested too deeply")
}

// fetchConfig gets the configuration through the same path as layers, so that it
// is retried and verified like them.
func (s *Store) fetchConfig(ctx context.Context, rr *remoteRepo, d descriptor) ([]byte, error) {
	if d.Size > maxConfig {
		return nil, failed("", "the image's configuration is larger than %s", sos.Size(maxConfig))
	}
	f, err := s.download(ctx, rr, d, func(sos.Progress) {})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := readLimited(f, maxConfig, "the image's configuration")
	return b, storeError(err, "reading the image's configuration")
}
