package image

import (
	"io"

	"github.com/seaofsimulation/sos"
)

// Limits bound what one image may make of this host. Zero fields get the
// defaults of DefaultLimits.
type Limits struct {
	Bytes   int64 // unpacked bytes of all layers together, holes counted
	Entries int64 // files, directories, links of one layer
	Ratio   int64 // unpacked to packed bytes of a layer, looked at above 1 GiB
	Layers  int   // overlay and mount options end somewhere
}

// DefaultLimits hold any sane image and stop a bomb before the disk is full.
var DefaultLimits = Limits{Bytes: 64 << 30, Entries: 4 << 20, Ratio: 200, Layers: 128}

func (l Limits) withDefaults() Limits {
	if l.Bytes == 0 {
		l.Bytes = DefaultLimits.Bytes
	}
	if l.Entries == 0 {
		l.Entries = DefaultLimits.Entries
	}
	if l.Ratio == 0 {
		l.Ratio = DefaultLimits.Ratio
	}
	if l.Layers == 0 {
		l.Layers = DefaultLimits.Layers
	}
	return l
}

const (
	ratioFloor  = 1 << 30 // small layers of zeros are no threat
	maxManifest = 8 << 20
	maxConfig   = 8 << 20
)

const limitFix = "make the image smaller; the limit guards the disk of the server"

// budget is what is left to one layer.
type budget struct {
	limits  Limits
	bytes   int64 // unpacked so far in this layer
	entries int64
	left    int64 // bytes this layer may have
}

func (b *budget) entry() error {
	b.entries++
	if b.entries > b.limits.Entries {
		return failed(limitFix, "the layer has more than %d entries", b.limits.Entries)
	}
	return nil
}

// spend is called with the announced size before a file is written, so that a
// sparse file of a petabyte is refused and not read.
func (b *budget) spend(n int64) error {
	if n < 0 || n > b.left-b.bytes {
		return failed(limitFix, "the image unpacks to more than %s", sos.Size(b.limits.Bytes))
	}
	b.bytes += n
	return nil
}

// readLimited reads all of r, or says that it is larger than most.
func readLimited(r io.Reader, most int64, what string) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > most {
		return nil, failed("", "%s is larger than %s", what, sos.Size(most))
	}
	return b, nil
}
