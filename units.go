package sos

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration that JSON gives as a string such as "5m" or
// "1h30m", or as a number of seconds. It is written as a string.
type Duration time.Duration

// ParseDuration reads "90s", "5m", "24h", "7d" or a plain number of seconds.
func ParseDuration(s string) (Duration, error) {
	bad := &Error{Code: CodeInvalid, Message: fmt.Sprintf("%q is not a duration", s),
		Fix: `use seconds (300) or a string such as "90s", "5m", "1h30m" or "7d"`}
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		return seconds(n, bad)
	}
	if d, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseFloat(d, 64); err == nil {
			return seconds(n*86400, bad)
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, bad
	}
	return Duration(d), nil
}

func seconds(n float64, bad error) (Duration, error) {
	if math.IsNaN(n) || n < 0 || n > math.MaxInt64/1e9 {
		return 0, bad
	}
	return Duration(n * 1e9), nil
}

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes the duration as a string, "5m0s" as "5m".
func (d Duration) MarshalJSON() ([]byte, error) {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return []byte(strconv.Quote(s)), nil // the same as in JSON, and the guest does without that package
}

// UnmarshalJSON reads a string or a number of seconds.
func (d *Duration) UnmarshalJSON(b []byte) (err error) {
	*d, err = ParseDuration(unquote(b))
	return err
}

// Size is a number of bytes that JSON gives as a string such as "2Gi" or "512M",
// or as a number. It is written as a number.
type Size int64

var sizeUnits = []struct {
	suffix string
	factor float64
}{
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40},
	{"K", 1e3}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12},
}

// ParseSize reads "2Gi", "512M", "100KiB" or a plain number of bytes.
func ParseSize(s string) (Size, error) {
	bad := &Error{Code: CodeInvalid, Message: fmt.Sprintf("%q is not a size", s),
		Fix: `use bytes (1048576) or a string such as "512Mi", "2Gi" or "1.5G"`}
	t, factor := strings.TrimSuffix(s, "B"), 1.0
	for _, u := range sizeUnits {
		if r, ok := strings.CutSuffix(t, u.suffix); ok {
			t, factor = r, u.factor
			break
		}
	}
	n, err := strconv.ParseFloat(t, 64)
	if err != nil || math.IsNaN(n) || n < 0 || n*factor > math.MaxInt64/2 {
		return 0, bad
	}
	return Size(n * factor), nil
}

// UnmarshalJSON reads a string or a number of bytes.
func (z *Size) UnmarshalJSON(b []byte) (err error) {
	*z, err = ParseSize(unquote(b))
	return err
}

// String gives the size in the largest binary unit that divides it.
func (z Size) String() string {
	for i := 3; i >= 0; i-- {
		if u := sizeUnits[i]; z != 0 && int64(z)%int64(u.factor) == 0 {
			return strconv.FormatInt(int64(z)/int64(u.factor), 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(z), 10)
}

func unquote(b []byte) string {
	if string(b) == "null" {
		return ""
	}
	if s, err := strconv.Unquote(string(b)); err == nil {
		return s
	}
	return string(b)
}
