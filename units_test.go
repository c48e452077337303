package sos

import (
	"encoding/json"
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		`"5m"`: 5 * time.Minute, `300`: 5 * time.Minute, `"300"`: 5 * time.Minute, `"1h30m"`: 90 * time.Minute,
		`"7d"`: 7 * 24 * time.Hour, `0.5`: time.Second / 2, `"1.5s"`: 1500 * time.Millisecond, `0`: 0, `"0"`: 0,
	} {
		var d Duration
		if err := json.Unmarshal([]byte(in), &d); err != nil || time.Duration(d) != want {
			t.Errorf("%s: %v, %v", in, d, err)
		}
		b, err := json.Marshal(d)
		var back Duration
		if err != nil || json.Unmarshal(b, &back) != nil || back != d {
			t.Errorf("%s: written as %s (%v)", in, b, err)
		}
	}
	for _, in := range []string{`"-5m"`, `-1`, `"x"`, `""`, `"5 m"`, `true`, `null`, `[]`, `1e300`, `"1e300d"`, `"NaN"`} {
		var d Duration
		if err := json.Unmarshal([]byte(in), &d); ErrorCode(err) != CodeInvalid {
			t.Errorf("%s: %v, %v", in, d, err)
		}
	}
	for d, want := range map[time.Duration]string{5 * time.Minute: `"5m"`, 24 * time.Hour: `"24h"`, 90 * time.Second: `"1m30s"`, 0: `"0s"`} {
		if b, _ := json.Marshal(Duration(d)); string(b) != want {
			t.Errorf("%v is written as %s, want %s", d, b, want)
		}
	}
}

func TestSize(t *testing.T) {
	for in, want := range map[string]Size{
		`"2Gi"`: 2 << 30, `"512M"`: 512e6, `1024`: 1024, `"1024"`: 1024, `"100KiB"`: 100 << 10, `"1.5G"`: 1.5e9, `"1k"`: 1000, `"7B"`: 7, `0`: 0,
	} {
		var z Size
		if err := json.Unmarshal([]byte(in), &z); err != nil || z != want {
			t.Errorf("%s: %d, %v", in, z, err)
		}
	}
	for _, in := range []string{`"-1"`, `-1`, `"x"`, `""`, `"Gi"`, `true`, `null`, `1e30`, `"2 Gi"`, `"1Zi"`, `"Inf"`} {
		var z Size
		if err := json.Unmarshal([]byte(in), &z); ErrorCode(err) != CodeInvalid {
			t.Errorf("%s: %d, %v", in, z, err)
		}
	}
	for z, want := range map[Size]string{2 << 30: "2Gi", 0: "0", 1000: "1000", 1536: "1536", 512 << 20: "512Mi"} {
		if z.String() != want {
			t.Errorf("%d is %q, want %q", int64(z), z, want)
		}
	}
}
