package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/tierlimit/tierlimit/internal/state"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// For any value in Redis, show prints something, without a negative time and without a byte that a
// terminal would act upon. Anyone who can write to Redis can store any value there.
func FuzzShow(f *testing.F) {
	for tag := range byte(11) {
		for _, size := range []int{1, 15, 21, 34, 37, 40, 60} {
			value := make([]byte, size)
			for i := range value {
				value[i] = byte(i)
			}
			value[0] = tag
			f.Add(value, int64(0), value)
			f.Add(value, int64(60_000_000), value)
		}
	}
	// So many units that their sum would overflow.
	f.Add(append([]byte{lua.TagSlots, 14: 0}, bytes.Repeat([]byte{0xff}, 22*200)...), int64(0), append([]byte{lua.TagHolds, 14: 0}, bytes.Repeat([]byte{0xff}, 30*200)...))
	// A key whose clock is 2,000 years ahead.
	f.Add(append([]byte{lua.TagFixedWindow}, bytes.Repeat([]byte{0xff}, 20)...), int64(0), []byte{})
	f.Fuzz(func(t *testing.T, value []byte, window int64, other []byte) {
		const now = 1_800_000_000_000_000
		if window < 0 || window > limit.MaxWindow.Microseconds() {
			return
		}
		k := keyShown{rule: "r", said: "k", redisKey: "tl:{k}:r", Key: state.Key{Clock: now, Expires: time.Minute}}
		if window > 0 {
			k.limit = limit.Per(5, time.Duration(window)*time.Microsecond)
		}
		k.State, k.broken = state.Decode(value, now, window)
		k.leases, k.lost = state.DecodeLeases(other)
		k.holds, k.unheld = state.DecodeHolds(other)
		var text strings.Builder
		if err := k.print(&text); err != nil {
			t.Fatal(err)
		}
		if k.State != nil && (k.State.Used() < 0 || k.State.Used() > 0 && k.State.Holders == nil && len(k.State.Units) == 0) {
			t.Errorf("%+v", k.State)
		}
		if strings.ContainsFunc(text.String(), func(r rune) bool { return unicode.IsControl(r) && r != '\n' }) {
			t.Errorf("%q", text.String())
		}
		if wrong := regexp.MustCompile(`(?m)( |in )-\d.*$`).FindString(text.String()); wrong != "" {
			t.Errorf("%q in\n%s", wrong, text.String())
		}
	})
}
