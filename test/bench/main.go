// Command bench compares SoS with the Docker Engine in one run on one machine:
// both are driven over HTTP and start from the same root filesystem. It prints
// medians and the ratio of each pair, and judges nothing.
//
//	bench -sos bin/sos -image rootfs.tar [-runs 30]
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"
)

// system is one of the two under measurement.
type system interface {
	name() string
	// start makes and starts a sandbox.
	start(ctx context.Context) (id string, err error)
	// run runs a command under bash -c and gives its output.
	run(ctx context.Context, id, command string) (string, error)
	remove(ctx context.Context, id string) error
	// memory is what is private to one idle sandbox, its helpers on the host
	// included, in bytes.
	memory(ctx context.Context, id string) (int64, error)
	close()
}

func main() {
	var (
		bin   = flag.String("sos", "bin/sos", "the sos binary")
		image = flag.String("image", "", "a tar of a root filesystem with bash")
		runs  = flag.Int("runs", 30, "repetitions of each figure")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := bench(ctx, *bin, *image, *runs); err != nil {
		log.Fatal(err)
	}
}

func bench(ctx context.Context, bin, image string, runs int) error {
	if image == "" {
		return fmt.Errorf("-image is needed")
	}
	ours, err := startSoS(ctx, bin, image)
	if err != nil {
		return err
	}
	defer ours.close()
	peers := []system{ours}
	if docker, err := startDocker(ctx, image); err != nil {
		fmt.Printf("no comparison with Docker: %v\n", err)
	} else {
		defer docker.close()
		peers = append(peers, docker)
	}
	t := newTable(peers)
	if err := latencies(ctx, t, peers, runs); err != nil {
		return err
	}
	if err := cycles(ctx, t, peers, runs); err != nil {
		return err
	}
	if err := memories(ctx, t, peers); err != nil {
		return err
	}
	if err := outputs(ctx, t, peers); err != nil {
		return err
	}
	if err := sessions(ctx, t, ours, runs*10); err != nil {
		return err
	}
	t.print(os.Stdout)
	return nil
}

// timed gives how long f took.
func timed(f func() error) (time.Duration, error) {
	t := time.Now()
	err := f()
	return time.Since(t), err
}
