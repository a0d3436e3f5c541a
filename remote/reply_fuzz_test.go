package remote

import (
	"encoding/binary"
	"testing"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Whatever integers a server answers, reading them neither panics nor makes up
// replies: it is an error, or all entries have a reply made of all integers.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{}, uint8(1), uint8(lua.Take))
	f.Add(make([]byte, 8*7), uint8(1), uint8(lua.Take))
	f.Add(make([]byte, 8*13), uint8(2), uint8(lua.TakeUpTo))
	f.Add(append(make([]byte, 8), 255, 255, 255, 255, 255, 255, 255, 255), uint8(1), uint8(lua.Peek))
	rule := newRule(f, limit.PerHour(10), limit.GCRA())
	f.Fuzz(func(t *testing.T, data []byte, count, operation uint8) {
		var values []int64
		for len(data) >= 8 {
			values = append(values, int64(binary.LittleEndian.Uint64(data)))
			data = data[8:]
		}
		entries := make([]Entry, count)
		for i := range entries {
			entries[i] = Entry{Key: "k", Rule: rule, Cost: 1, Operation: 1 + (int(operation)+i)%5}
		}
		replies := make([]Reply, count)
		if err := decode(values, entries, replies); err != nil {
			return
		}
		for _, r := range replies {
			if r.Clock != values[0] {
				t.Errorf("%+v does not carry the clock %v", r, values[0])
			}
		}
		if err := decode(append(values, 1), entries, replies); err == nil {
			t.Errorf("an integer too many was read by nobody: %v", values)
		}
		if len(values) > 1 {
			if err := decode(values[:len(values)-1], entries, replies); err == nil {
				t.Errorf("an integer too few made no difference: %v", values)
			}
		}
	})
}
