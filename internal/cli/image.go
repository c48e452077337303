package cli

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seaofsimulation/sos"
)

func (a *cli) image() *cobra.Command {
	cmd := group("image", "Pull, import, list and remove images")
	s := a.server(cmd)
	cmd.AddCommand(s.add(a.imagePull(s)), s.add(a.imageImport(s)), s.add(a.imageList(s)),
		s.add(a.imageInspect(s)), s.add(a.imageRemove(s)))
	return cmd
}

func (a *cli) imagePull(s *server) *cobra.Command {
	cmd := &cobra.Command{Use: "pull IMAGE", Short: "Pull an image from its registry", Args: exactArgs("IMAGE")}
	f := a.format(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		svc, err := s.dial()
		if err != nil {
			return err
		}
		f.say("Pulling image: %s", args[0])
		p := a.progress(f)
		img, err := svc.PullImage(cmd.Context(), args[0], p.show)
		p.clear()
		if err != nil {
			return failure("pull image", err)
		}
		return a.gotImage(f, img, "pulled")
	}
	return cmd
}

func (a *cli) imageImport(s *server) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Import an image from a file",
		Long: "Import an image from a root filesystem tar, a docker-save archive or an OCI archive\n" +
			"(plain, gzip or zstd), or from an OCI layout directory. FILE - is stdin.",
		Args: exactArgs("FILE"),
	}
	f := a.format(cmd)
	cmd.Flags().StringVarP(&name, "name", "n", "", "`name` to give it, such as debian:bookworm; archives may bring their own")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in, size, err := a.openImage(args[0])
		if err != nil {
			return err
		}
		defer in.Close()
		svc, err := s.dial()
		if err != nil {
			return err
		}
		f.say("Importing image from: %s", args[0])
		p := a.progress(f)
		img, err := svc.ImportImage(cmd.Context(), p.reader(in, size), name, p.show)
		p.clear()
		if err != nil {
			return failure("import image", err)
		}
		return a.gotImage(f, img, "imported")
	}
	return cmd
}

// openImage opens what an import reads, with its size where that is known.
func (a *cli) openImage(path string) (io.ReadCloser, int64, error) {
	if path == "-" {
		return io.NopCloser(a.In), 0, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	st, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	if st.IsDir() {
		file.Close()
		return tarDirectory(path), 0, nil
	}
	if !st.Mode().IsRegular() {
		return file, 0, nil
	}
	return file, st.Size(), nil
}

func (a *cli) gotImage(f *format, img sos.Image, done string) error {
	f.ok("Image %s: %s", done, imageName(img))
	f.say("  Digest: %s", img.Digest)
	f.say("  Use 'sos sandbox create --image %s' to create a sandbox from it", imageName(img))
	if !img.HasBash {
		f.note("It has no /bin/bash: only standalone commands (exec -s) will run in it")
	}
	return f.result(img, img.Digest)
}

func (a *cli) imageList(s *server) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List local images", Args: exactArgs()}
	f := a.format(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		svc, err := s.dial()
		if err != nil {
			return err
		}
		list, err := svc.ListImages(cmd.Context())
		if err != nil {
			return failure("list images", err)
		}
		if f.json {
			if list == nil {
				list = []sos.Image{}
			}
			return writeJSON(a.Out, list)
		}
		if len(list) == 0 {
			f.say("No images found")
			return nil
		}
		f.say("%-40s %-12s %-10s %-10s ADDED", "NAME", "DIGEST", "SIZE", "PLATFORM")
		for _, img := range list {
			names := img.Names
			if len(names) == 0 {
				names = []string{"<none>"}
			}
			for _, n := range names {
				f.say("%-40s %-12s %-10s %-10s %s", familiar(n), shortDigest(img.Digest), bytesText(img.Size),
					img.OS+"/"+img.Architecture, img.AddedAt.Local().Format("2006-01-02 15:04"))
			}
			if f.quiet {
				fmt.Fprintln(a.Out, img.Digest)
			}
		}
		return nil
	}
	return cmd
}

func (a *cli) imageInspect(s *server) *cobra.Command {
	cmd := &cobra.Command{Use: "inspect IMAGE", Short: "Show everything known about a local image, as JSON", Args: exactArgs("IMAGE")}
	f := a.format(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		svc, err := s.dial()
		if err != nil {
			return err
		}
		img, err := svc.GetImage(cmd.Context(), args[0])
		if err != nil {
			return failure("inspect image", err)
		}
		if f.quiet {
			return f.result(img, img.Digest)
		}
		return writeJSON(a.Out, img)
	}
	return cmd
}

func (a *cli) imageRemove(s *server) *cobra.Command {
	cmd := &cobra.Command{Use: "rm IMAGE", Aliases: []string{"remove"}, Short: "Remove a local image", Args: exactArgs("IMAGE")}
	f := a.format(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		svc, err := s.dial()
		if err != nil {
			return err
		}
		if err := svc.RemoveImage(cmd.Context(), args[0]); err != nil {
			return failure("remove image", err)
		}
		f.ok("Image %s removed", args[0])
		return f.result(map[string]string{"removed": args[0]}, "")
	}
	return cmd
}

func imageName(img sos.Image) string {
	if len(img.Names) > 0 {
		return familiar(img.Names[0])
	}
	return shortDigest(img.Digest)
}

// familiar is a name as people write it: "ubuntu:latest" for
// "docker.io/library/ubuntu:latest".
func familiar(name string) string {
	for _, registry := range []string{"docker.io/", "index.docker.io/"} {
		if rest, ok := strings.CutPrefix(name, registry); ok {
			return strings.TrimPrefix(rest, "library/")
		}
	}
	return name
}

func shortDigest(d string) string {
	d = strings.TrimPrefix(d, "sha256:")
	return d[:min(12, len(d))]
}

// bytesText rounds a number of bytes for people.
func bytesText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}
