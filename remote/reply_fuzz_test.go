package remote

import (
	"testing"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Decoding a server's answer never panics and never invents replies, whatever the answer is. It either returns an
// error, or every entry has a reply and all bytes are used. No reply has more decisions or units than were asked for,
// since callers make room for as many, nor a negative time.
func FuzzDecode(f *testing.F) {
	clock := "\x06\x01\x02\x03\x04\x05\x06"
	zeros := func(n int) string { return string(make([]byte, n)) }
	f.Add("", uint8(1), uint8(lua.Take))
	f.Add(clock, uint8(0), uint8(lua.Take))
	f.Add("\x00\x06"+zeros(42)+clock, uint8(1), uint8(lua.Take))
	f.Add("\x00\x04"+zeros(28)+"\x00\x01"+zeros(7)+clock, uint8(2), uint8(lua.TakeUpTo))
	f.Add("\xff"+zeros(14)+clock, uint8(1), uint8(lua.Take))
	f.Add("\x04"+clock+zeros(26), uint8(1), uint8(lua.Take))
	f.Add("\xfe\x04"+clock+zeros(32)+clock, uint8(1), uint8(lua.Take))
	f.Add("\x01"+clock+zeros(30)+"\x04"+clock+zeros(26)+clock, uint8(2), uint8(lua.Take))
	f.Add("\x04"+clock+zeros(26)+"\x04"+clock+zeros(26)+clock, uint8(2), uint8(lua.Take)) // rule 2 has no such state
	f.Add("\x05"+clock+zeros(20)+clock, uint8(1), uint8(lua.Take))
	// Three holds share an entry, and one of them fits.
	f.Add("\x00\x04"+zeros(6)+"\x04"+zeros(21)+"\x00\x06"+zeros(6)+"\x03"+zeros(35)+"\x00\x01"+zeros(6)+"\x01"+clock, uint8(1), uint8(lua.Hold))
	f.Add("\x00\x05"+zeros(6)+"\x03"+zeros(28)+"\x01\x00\x02"+clock, uint8(1), uint8(lua.Settle))
	f.Add("\xfd"+zeros(7)+"\x00\x05"+zeros(6)+"\x03"+zeros(28)+"\x01\x00\x02"+clock, uint8(1), uint8(lua.Settle))
	f.Add("\x00\x04"+zeros(6)+"\x03"+zeros(21), uint8(1), uint8(lua.Settle)) // the fifth number is missing
	f.Add("\x00\x04"+zeros(6)+"\x03"+zeros(21), uint8(1), uint8(lua.Lease))
	f.Add("\x00\x04\x7f"+zeros(27)+clock, uint8(1), uint8(lua.Take))                              // 2^54 of one
	f.Add("\x00\x04\x7f"+zeros(27)+clock, uint8(1), uint8(lua.TakeUpTo))                          // 2^54 units of one
	f.Add("\x00\x06"+zeros(6)+"\x01"+zeros(35)+clock, uint8(1), uint8(lua.Take))                  // less than none
	f.Add("\x00\x06"+zeros(6)+"\x03"+zeros(21)+"\xff"+zeros(13)+clock, uint8(1), uint8(lua.Take)) // retry in 2,000 years
	f.Add("\xfd"+zeros(7)+"\xff"+zeros(14)+clock, uint8(1), uint8(lua.Take))                      // a settlement's answer
	rules := []*Rule{newRule(f, limit.PerHour(10), limit.GCRA()), newRule(f, limit.PerHour(10), limit.FixedWindow())}
	f.Fuzz(func(t *testing.T, text string, count, operation uint8) {
		entries := make([]Entry, count)
		for i := range entries {
			e := &entries[i]
			*e = Entry{Key: "k", Rule: rules[i%2], Cost: 1, Operation: (int(operation) + i) % (lua.Extend + 1)}
			if e.Operation == lua.Hold || e.Operation == lua.Settle {
				e.Count, e.joined = 3, []joinedHold{{1, 1}, {2, 1}, {3, 1}}
			}
		}
		replies := make([]Reply, count)
		for n := range len(text) {
			_ = decode(text[:n], entries, replies) // does not panic, wherever an answer ends
		}
		if err := decode(text, entries, replies); err != nil {
			return
		}
		for i, r := range replies {
			for _, one := range append(r.each(), r) {
				if most := entries[i].mostOutcome(); one.Fitted < 0 || one.Fitted > most || one.Granted < 0 ||
					entries[i].Operation == lua.Take && one.Granted != one.Fitted*entries[i].Cost {
					t.Errorf("%+v answers %+v", one, entries[i])
				}
				if min(one.RetryAfter, one.NextAfter, one.ResetAfter, one.Life) < 0 {
					t.Errorf("%+v has a negative time", one)
				}
			}
			if r.Clock != replies[0].Clock {
				t.Errorf("%+v does not carry the clock %v", r, replies[0].Clock)
			}
		}
		if err := decode(text+"x", entries, replies); err == nil {
			t.Errorf("a byte too many was read by nobody: %q", text)
		}
		if err := decode(text[:len(text)-1], entries, replies); err == nil {
			t.Errorf("a byte too few made no difference: %q", text)
		}
	})
}
