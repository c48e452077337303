package image

import (
	"context"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seaofsimulation/sos"
)

// failed makes a CodeImageFailed with what to do about it.
func failed(fix, format string, args ...any) *sos.Error {
	e := sos.Errorf(sos.CodeImageFailed, format, args...)
	e.Fix = fix
	return e
}

// storeError turns an error of the host's filesystem into one for people: a full
// disk is theirs to mend, anything else is internal and only the log says more.
func storeError(err error, doing string) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*sos.Error](err); ok {
		return err
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return canceled(err)
	case isFull(err):
		return &sos.Error{Code: sos.CodeImageFailed, Message: "no space left on the disk of the image store (" + doing + ")",
			Fix:   "remove images (sos image rm) or stopped sandboxes, or give the server a larger --data-dir",
			Cause: err}
	case errors.Is(err, unix.EROFS):
		return &sos.Error{Code: sos.CodeImageFailed, Message: "the disk of the image store is read-only (" + doing + ")",
			Fix: "mount the data directory's filesystem read-write", Cause: err}
	}
	return &sos.Error{Code: sos.CodeImageFailed, Message: "the image store failed (" + doing + ")",
		Fix: "the server's log has the cause", Cause: err}
}

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// errDamaged marks errors of an archive's own bytes.
var errDamaged = errors.New("damaged archive")

// corrupt is the error of a stream that cannot be read to its end. What the
// stream's source says of itself (a caller who went away, a full disk) stands.
func corrupt(err error) error {
	if e, ok := errors.AsType[*sos.Error](err); ok {
		return e
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return canceled(err)
	}
	return &sos.Error{Code: sos.CodeImageFailed, Message: "the archive is damaged or cut short",
		Fix: "get it again, and compare its checksum with the source", Cause: err}
}

func quote(s string) string { return strconv.QuoteToGraphic(s) }
