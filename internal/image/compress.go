package image

import (
	"bufio"
	"bytes"

	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

const (
	peekSize = 64 << 10
	// maxWindow is what a zstd frame may make us hold; 128 MiB is what zstd --long
	// uses and what zstd -d takes without being asked.
	maxWindow = 128 << 20
)

var (
	gzipMagic = []byte{0x1f, 0x8b, 0x08}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
	otherKind = map[string][]byte{
		"bzip2": []byte("BZh"),
		"xz":    {0xfd, '7', 'z', 'X', 'Z', 0},
		"zip":   []byte("PK\x03\x04"),
	}
)

// plain is a decompressed stream with a look at its first bytes.
type plain struct {
	*bufio.Reader
	close func()
}

func (p *plain) Close() { p.close() }

// decompress looks at the first bytes of r and undoes gzip or zstd. The end of a
// compressed stream is checked by its own checksum, so a cut one is an error; one
// that unpacks to too many times its size is given up.
func decompress(r io.Reader, l Limits) (*plain, error) {
	packed := &counter{r: r}
	src := bufio.NewReaderSize(packed, peekSize)
	head, _ := src.Peek(6) // short or failing: the tar reader says so
	p := &plain{close: func() {}}
	switch {
	case bytes.HasPrefix(head, gzipMagic):
		z, err := gzip.NewReader(src)
		if err != nil {
			return nil, corrupt(err)
		}
		p.Reader = bufio.NewReaderSize(&ratioReader{r: z, packed: packed, most: l.Ratio}, peekSize)
		return p, nil
	case bytes.HasPrefix(head, zstdMagic):
		z, err := zstd.NewReader(src, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, corrupt(err)
		}
		p.close = z.Close
		p.Reader = bufio.NewReaderSize(&ratioReader{r: z, packed: packed, most: l.Ratio}, peekSize)
		return p, nil
	}
	for kind, magic := range otherKind {
		if bytes.HasPrefix(head, magic) {
			return nil, failed("give it as a plain, gzip or zstd tar", "the archive is %s, which is not read", kind)
		}
	}
	p.Reader = src
	return p, nil
}

// counter counts the bytes that pass.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

// ratioReader gives a bomb up as it unpacks.
type ratioReader struct {
	r      io.Reader
	packed *counter
	most   int64
	n      int64
}

func (z *ratioReader) Read(b []byte) (int, error) {
	n, err := z.r.Read(b)
	z.n += int64(n)
	if z.n > ratioFloor && z.n/max(z.packed.n, 1) > z.most {
		return 0, failed(limitFix, "the archive unpacks to more than %d times its size, like a bomb", z.most)
	}
	return n, err
}
