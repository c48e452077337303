package control

import (
	"context"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/seaofsimulation/sos"
)

// CreateSandbox implements sos.Service.
func (p *Plane) CreateSandbox(ctx context.Context, spec sos.SandboxSpec) (sos.Sandbox, error) {
	if err := checkSpec(&spec); err != nil {
		return sos.Sandbox{}, err
	}
	if err := p.await(ctx); err != nil {
		return sos.Sandbox{}, err
	}
	for {
		b, mine := p.claimName(spec)
		if mine {
			return p.insert(b)
		}
		again, s, err := p.reconnect(ctx, b, spec)
		if !again {
			return s, err
		}
	}
}

// claimName makes a sandbox that holds its name in the tables, or gives the one
// that has the name.
func (p *Plane) claimName(spec sos.SandboxSpec) (b *box, mine bool) {
	id, now := p.newID(sos.SandboxIDPrefix), p.cfg.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if b := p.names[spec.Name]; spec.Name != "" && b != nil {
		return b, false
	}
	b = newBox(sos.Sandbox{ID: id, SandboxSpec: spec, Status: sos.StatusCreated, Desired: sos.DesiredCreated, CreatedAt: now})
	p.boxes[id] = b
	if spec.Name != "" {
		p.names[spec.Name] = b
	}
	return b, true
}

// insert records the sandbox, whether or not its creator still waits.
func (p *Plane) insert(b *box) (sos.Sandbox, error) {
	defer close(b.inserted)
	ctx, cancel := p.write()
	defer cancel()
	row, err := p.cfg.Store.InsertSandbox(ctx, b.row)
	if err != nil {
		p.forget(b)
		if sos.ErrorCode(err) == sos.CodeInternal {
			err = internal("create", b.id, err)
		}
		return sos.Sandbox{}, err
	}
	b.mu.Lock()
	b.row, b.exists = row, true
	b.mu.Unlock()
	return b.view(0), nil
}

// reconnect answers a create whose name is taken; again: it is free now.
func (p *Plane) reconnect(ctx context.Context, b *box, spec sos.SandboxSpec) (again bool, s sos.Sandbox, err error) {
	select {
	case <-b.inserted:
	case <-ctx.Done():
		return false, s, gone(ctx)
	}
	b.mu.Lock()
	end, exists, desired, has := b.end, b.exists, b.row.Desired, b.row.SandboxSpec
	b.mu.Unlock()
	switch {
	case !exists:
		return true, s, nil
	case end != nil && end.remove:
		select {
		case <-end.done:
			if end.err == nil {
				return true, s, nil
			}
		case <-ctx.Done():
			return false, s, gone(ctx)
		}
		fallthrough
	case desired == sos.DesiredRemoved:
		return false, s, &sos.Error{Code: sos.CodeConflict, Message: fmt.Sprintf("the sandbox with the name %q is still being removed", spec.Name), Fix: "try again in a moment"}
	}
	if diff := differences(spec, has); len(diff) > 0 {
		return false, s, &sos.Error{Code: sos.CodeConflict, Message: fmt.Sprintf("the name %q is taken by a sandbox with another %s", spec.Name, strings.Join(diff, ", ")),
			Fix: "choose another name, ask for the same, or remove that sandbox first"}
	}
	s = p.get(b)
	s.Reconnected = true
	return false, s, nil
}

// differences names the fields that want sets and has has otherwise.
func differences(want, has sos.SandboxSpec) (list []string) {
	add := func(name string, named, same bool) {
		if named && !same {
			list = append(list, name)
		}
	}
	add("image", want.Image != "", want.Image == has.Image)
	add("setup_commands", len(want.SetupCommands) > 0, slices.Equal(want.SetupCommands, has.SetupCommands))
	add("cpu", want.CPU != 0, want.CPU == has.CPU)
	add("memory", want.Memory != 0, want.Memory == has.Memory)
	add("disk", want.Disk != 0, want.Disk == has.Disk)
	add("pids", want.PIDs != 0, want.PIDs == has.PIDs)
	add("env", len(want.Env) > 0, maps.Equal(want.Env, has.Env))
	add("workdir", want.Workdir != "", want.Workdir == has.Workdir)
	add("user", want.User != "", want.User == has.User)
	add("labels", len(want.Labels) > 0, maps.Equal(want.Labels, has.Labels))
	add("timeout", want.Timeout != 0, want.Timeout == has.Timeout)
	add("start_timeout", want.StartTimeout != 0, want.StartTimeout == has.StartTimeout)
	return list
}

// Smallest limits with which a sandbox can be of any use.
const (
	minMemory = 16 << 20
	minDisk   = 1 << 20
	minPIDs   = 16
	minCPU    = 0.01
	maxCPU    = 4096
)

// checkSpec refuses what can never be right. The image is looked at when it is
// needed: at the start.
func checkSpec(s *sos.SandboxSpec) error {
	if s.Name != "" {
		if err := sos.CheckName(s.Name); err != nil {
			return err
		}
	}
	invalid := func(format string, args ...any) error { return sos.Errorf(sos.CodeInvalid, format, args...) }
	if s.SetupCommands == nil {
		s.SetupCommands = []string{}
	}
	for i, c := range s.SetupCommands {
		if strings.IndexByte(c, 0) >= 0 {
			return invalid("setup_commands: command %d holds a NUL byte", i+1)
		}
	}
	switch {
	case s.CPU != 0 && (math.IsNaN(s.CPU) || s.CPU < minCPU || s.CPU > maxCPU):
		return invalid("cpu is %v cores; it must be from %v to %d", s.CPU, minCPU, maxCPU)
	case s.Memory != 0 && s.Memory < minMemory:
		return invalid("memory is %s; at least %s are needed", s.Memory, sos.Size(minMemory))
	case s.Disk != 0 && s.Disk < minDisk:
		return invalid("disk is %s; at least %s are needed", s.Disk, sos.Size(minDisk))
	case s.PIDs != 0 && s.PIDs < minPIDs:
		return invalid("pids is %d; at least %d are needed", s.PIDs, minPIDs)
	case s.Timeout < 0 || s.StartTimeout < 0:
		return invalid("a timeout is negative")
	case s.Workdir != "" && (!path.IsAbs(s.Workdir) || strings.IndexByte(s.Workdir, 0) >= 0):
		return invalid("workdir %q is not an absolute path", s.Workdir)
	case strings.IndexByte(s.User, 0) >= 0 || strings.IndexByte(s.Image, 0) >= 0:
		return invalid("image or user holds a NUL byte")
	}
	return checkEnv(s.Env)
}

// GetSandbox implements sos.Service.
func (p *Plane) GetSandbox(ctx context.Context, ref string) (sos.Sandbox, error) {
	b, err := p.find(ctx, ref)
	if err != nil {
		return sos.Sandbox{}, err
	}
	return p.get(b), nil
}

// ListSandboxes implements sos.Service.
func (p *Plane) ListSandboxes(ctx context.Context, f sos.SandboxFilter) ([]sos.Sandbox, error) {
	if err := p.await(ctx); err != nil {
		return nil, err
	}
	positions := p.admission.positions()
	list := []sos.Sandbox{}
	for _, b := range p.all() {
		if !b.recorded() {
			continue
		}
		if s := b.view(positions[b.id]); matches(s, f) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b sos.Sandbox) int { return int(a.Seq - b.Seq) })
	return list, nil
}

func matches(s sos.Sandbox, f sos.SandboxFilter) bool {
	if len(f.Status) > 0 && !slices.Contains(f.Status, s.Status) {
		return false
	}
	for k, v := range f.Labels {
		if has, ok := s.Labels[k]; !ok || has != v {
			return false
		}
	}
	return true
}
