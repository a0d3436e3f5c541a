package remote

import (
	"encoding/binary"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/lua"
)

// Whatever a server answers, reading it neither panics nor makes up replies: a reply
// of the wrong form is an error, and one of the right form is read in full.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{}, 1, false)
	f.Add(make([]byte, 8*(1+lua.EntryReplies)), 1, false)
	f.Add(make([]byte, 8*(1+2*lua.EntryReplies)), 2, true)
	f.Fuzz(func(t *testing.T, data []byte, entries int, text bool) {
		if entries < 0 || entries > 100 {
			return
		}
		var values []any
		for len(data) >= 8 {
			values = append(values, int64(binary.LittleEndian.Uint64(data)))
			data = data[8:]
		}
		if text && len(values) > 0 {
			values[len(values)-1] = string(data)
		}
		part := make([]int, entries)
		for i := range part {
			part[i] = i
		}
		replies := make([]Reply, entries)
		cmd := redis.NewCmd(t.Context())
		cmd.SetVal(values)
		err := decode(chargeCmd{cmd}, part, replies)
		wellFormed := !text && len(values) == 1+entries*lua.EntryReplies
		if wellFormed != (err == nil) && !text {
			t.Errorf("%d integers for %d entries: %v", len(values), entries, err)
		}
		if err == nil && entries > 0 && replies[entries-1].Clock != values[0] {
			t.Errorf("%+v does not carry the clock %v", replies[entries-1], values[0])
		}
	})
}
