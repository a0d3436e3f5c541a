package remote

import (
	"encoding/binary"
	"slices"

	"github.com/tierlimit/tierlimit/lua"
)

// pack writes the script's packed argument for a batch; frame.lua describes it.
func pack(entries []Entry, clock int64) []byte {
	base := int64(0) // the earliest not-after of the entries, or 0 if no entry has one
	// Each rule is written once, however many entries use it. Batches have few different rules, so a linear search
	// is fastest.
	var few [4]*Rule
	rules := few[:0]
	numbers := make([]uint16, len(entries)) // each entry's rule: its place in the list, counted from 1
	for i := range entries {
		e := &entries[i]
		if e.NotAfter > 0 && (base == 0 || e.NotAfter < base) {
			base = e.NotAfter
		}
		at := slices.Index(rules, e.Rule)
		if at < 0 {
			at, rules = len(rules), append(rules, e.Rule)
		}
		numbers[i] = uint16(at + 1)
	}
	packed := make([]byte, 0, 16+2*lua.RuleBytes+len(entries)*8)
	packed = appendInt(packed, clock, 7)
	packed = appendInt(packed, base, 7)
	packed = appendInt(packed, int64(len(rules)), 2)
	for _, rule := range rules {
		packed = append(packed, rule.at(clock)[:]...)
	}
	for i := 0; i < len(entries); {
		sameKey := i > 0 && entries[i].sameKey(&entries[i-1])
		if n := takes(entries[i:]); n > 1 && !sameKey {
			packed = packTakes(packed, entries[i:i+n], numbers[i], base)
			i += n
			continue
		}
		packed = entries[i].pack(packed, numbers[i], base, sameKey)
		i++
	}
	return packed
}

// maxTakes is the largest number of entries that one Takes stands for. The script keeps one piece of its reply for each of
// them, and joins the pieces after it.
const maxTakes = 128

// takes returns how many of the entries, from the first on, one Takes can stand for. Most decisions of a service are of
// one rule and cost, and the script decides those of one Takes in a single loop.
func takes(entries []Entry) int {
	n := 0
	for n < min(len(entries), maxTakes) && entries[n].isSimpleTake() && entries[n].Rule == entries[0].Rule &&
		entries[n].Cost == entries[0].Cost && (n == 0 || !entries[n].sameKey(&entries[n-1])) {
		n++
	}
	if n > 0 && n < len(entries) && entries[n].sameKey(&entries[n-1]) {
		n-- // neighboring entries of a key share its state
	}
	return n
}

// isSimpleTake reports whether the entry is a single Take with a short cost, and no group or second key.
func (e *Entry) isSimpleTake() bool {
	return e.Operation == lua.Take && e.Group == 0 && e.count() == 1 && e.Cost <= 255 && !e.usesHolds()
}

// packTakes packs entries of one rule and cost as one Takes.
func packTakes(packed []byte, entries []Entry, rule uint16, base int64) []byte {
	at, earliest := len(packed), int64(lua.NoNotAfter)
	packed = append(packed, lua.FurtherOperation+lua.Takes-8, byte(rule>>8), byte(rule), 0, 0, byte(entries[0].Cost))
	packed = appendInt(packed, int64(len(entries)), 2)
	for i := range entries {
		after := entries[i].notAfter(base)
		earliest = min(earliest, after)
		packed = appendInt(packed, after, 2)
	}
	packed[at+3], packed[at+4] = byte(earliest>>8), byte(earliest)
	return packed
}

// packSingle writes the packed argument for a single entry. The entry's rule is a separate argument of the
// command.
func packSingle(e *Entry) []byte {
	size := 16
	if e.Operation >= lua.Hold {
		size = 48
	}
	return e.pack(appendInt(make([]byte, 0, size), e.NotAfter, 7), 1, e.NotAfter, false)
}

func (e *Entry) pack(packed []byte, rule uint16, base int64, sameKey bool) []byte {
	form, cost, charges := e.Operation, e.Cost, []Charge(nil)
	if form == lua.Charge {
		charges = e.charges()
		cost = int64(len(charges))
	}
	if form >= 8 {
		form += lua.FurtherOperation - 8
	}
	if sameKey {
		form |= lua.SameKey
	}
	after := e.notAfter(base)
	at := len(packed)
	packed = append(packed, 0, byte(rule>>8), byte(rule), byte(after>>8), byte(after), byte(cost))
	if e.Group != 0 {
		form |= lua.HasGroup
		packed = appendInt(packed, int64(e.Group), 2)
	}
	if cost > 255 {
		form |= lua.LongCost
		packed[at+5] = 0
		packed = appendInt(packed, cost, 7)
	}
	if e.count() > 1 {
		form |= lua.HasCount
		packed = appendInt(packed, e.Count, 3)
	}
	packed[at] = byte(form) // with the flags set above
	switch e.Operation {
	case lua.Refund:
		packed = appendInt(packed, e.Charged, 7)
		packed = appendInt(packed, e.Stamp, 7)
	case lua.Lease:
		packed = binary.BigEndian.AppendUint64(packed, e.Lease.ID)
		packed = binary.BigEndian.AppendUint64(packed, e.Lease.Over)
		packed = appendInt(packed, e.Lease.Most, 7)
		packed = appendInt(packed, e.Lease.Reserve, 7)
		packed = appendInt(packed, e.Lease.Life.Microseconds(), 4)
	case lua.Hold, lua.HoldUpTo, lua.Settle, lua.Extend:
		packed = binary.BigEndian.AppendUint64(packed, e.Hold.ID)
		packed = appendInt(packed, e.Hold.Life.Microseconds(), 7)
		for _, h := range e.joined {
			packed = appendInt(binary.BigEndian.AppendUint64(packed, h.id), h.units, 7)
		}
	case lua.Charge:
		packed = appendInt(packed, e.Sequence, 7)
		for _, c := range charges {
			packed = appendInt(packed, c.Units, 6)
			packed = appendInt(packed, c.Age.Microseconds(), 7)
		}
	}
	return packed
}

// notAfter returns the entry's NotAfter as the script's packed argument has it.
func (e *Entry) notAfter(base int64) int64 {
	if e.NotAfter == 0 {
		return lua.NoNotAfter
	}
	return min((e.NotAfter-base)/lua.NotAfterStep, lua.NoNotAfter-1) // rounded down: early rather than late
}

// appendInt appends n, which is not negative, as an integer of the given number of bytes.
func appendInt(text []byte, n int64, bytes int) []byte {
	for shift := 8 * (bytes - 1); shift >= 0; shift -= 8 {
		text = append(text, byte(n>>shift))
	}
	return text
}
