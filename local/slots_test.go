package local

import (
	"math"
	"strconv"
	"testing"
	"time"
)

const slotsNow = int64(1_790_000_000_000_000_000)

func everyKey(HeldKey) bool { return true }

func noKey(HeldKey) bool { return false }

// holdSlots makes a table hold slots of one unit each until the time till. free is the number of other units that
// are free, according to Redis.
func holdSlots(table *Slots[string], now, till, free int64, slots ...*Slot[string]) {
	h, _ := table.Enter(theKey, "owner", fleetTTL)
	h.Granted(now, till, free, 1, slots...)
}

// lasts reports whether a slot will be held at a future time, unless something changes before.
func lasts(s *Slot[string], at int64) bool { return at < s.till() && !s.lost.Load() }

func ended(s *Slot[string]) bool {
	select {
	case <-s.Ended():
		return true
	default:
		return false
	}
}

// Law 11 for limits on what is in flight: without Redis, a process holds what it held, plus its part of the free
// units. Of a key of which it holds nothing, it holds its part of the limit, and at least one unit. The share is
// fixed when the process first asks in an outage, so that units acquired afterwards make no room for more.
func TestLaw11SharesOfSlots(t *testing.T) {
	for _, test := range []struct {
		what              string
		quota             int64
		fleet             int
		held, free, share int64
	}{
		{"what is held and a part of the rest", 10, 3, 4, 6, 6},
		{"a part of the rest is rounded down", 10, 4, 4, 3, 4},
		{"all that is free, without others", 10, 1, 4, 6, 10},
		{"a fleet whose size is not known", 10, 0, 4, 6, 10},
		{"the limit, if it was lowered meanwhile", 5, 1, 4, 17, 5},
		{"a part of the limit, if that was lowered", 5, 5, 1, 17, 2},
		{"a part of the limit, if nothing is held", 10, 3, 0, 0, 3},
		{"one unit, however large the fleet", 10, 30, 0, 0, 1},
	} {
		table := NewSlots[string](func() {})
		for range test.held {
			holdSlots(table, slotsNow, slotsNow+int64(fleetTTL), test.free, new(Slot[string]))
		}
		if room := table.Room(slotsNow, theKey, Share{Quota: test.quota, Outage: 7, Fleet: test.fleet}); room != test.share-test.held {
			t.Errorf("%s: room for %d units, want %d", test.what, room, test.share-test.held)
		}
		share := Share{Quota: test.quota, Outage: 7, Fleet: test.fleet}
		for held := test.held; held <= test.share; held++ {
			granted, left := table.GrantAlone(slotsNow, theKey, "owner", fleetTTL, share, 1, new(Slot[string]))
			if want := held < test.share; granted != want || left != max(0, test.share-held-1) {
				t.Fatalf("%s: with %d of %d units held, granted one more: %v, %d are left", test.what, held, test.share, granted, left)
			}
		}
		if units := table.Counts()[theKey.Rule].Units; units != test.share {
			t.Errorf("%s: %d units are held, want %d", test.what, units, test.share)
		}
	}
}

// While no outage is counted, the share is that of the moment. If the limit is lower than what is held, the room is
// zero, not negative.
func TestRoomForSlots(t *testing.T) {
	table := NewSlots[string](func() {})
	for i, want := range []int64{3, 2, 1} {
		if room := table.Room(slotsNow, theKey, Share{Quota: 9, Outage: 0, Fleet: 3}); room != want {
			t.Errorf("room for %d units while %d are held, want %d", room, i, want)
		}
		holdSlots(table, slotsNow, slotsNow+int64(fleetTTL), int64(8-3*i), new(Slot[string]))
	}
	if room := table.Room(slotsNow, theKey, Share{Quota: 2, Outage: 1, Fleet: 1}); room != 0 {
		t.Errorf("room for %d units of a lower limit", room)
	}
	share := Share{Quota: 2, Outage: 1, Fleet: 1}
	if granted, left := table.GrantAlone(slotsNow, theKey, "owner", fleetTTL, share, 1, new(Slot[string])); granted || left != 0 {
		t.Errorf("granted %v, %d are left", granted, left)
	}
}

// The next outage has new shares, based on the units held when it begins.
func TestLaw11SharesOfSlotsInTheNextOutage(t *testing.T) {
	table := NewSlots[string](func() {})
	var first, second Slot[string]
	holdSlots(table, slotsNow, slotsNow+int64(fleetTTL), 8, &first, &second)
	if room := table.Room(slotsNow, theKey, Share{Quota: 10, Outage: 1, Fleet: 4}); room != 2 {
		t.Errorf("room for %d units, want 2", room)
	}
	first.Release(slotsNow, slotsNow, true)
	if room := table.Room(slotsNow, theKey, Share{Quota: 10, Outage: 1, Fleet: 8}); room != 3 {
		t.Errorf("in the same outage, with one unit less: room for %d units, want 3", room)
	}
	if room := table.Room(slotsNow, theKey, Share{Quota: 10, Outage: 2, Fleet: 8}); room != 1 {
		t.Errorf("in the next outage: room for %d units, want 1", room)
	}
}

// A limit that is changed in an outage applies at once: the share is the same fraction of the new limit.
func TestLaw11SharesOfSlotsUnderAnotherLimit(t *testing.T) {
	table := NewSlots[string](func() {})
	var slots [2]Slot[string]
	holdSlots(table, slotsNow, slotsNow+int64(fleetTTL), 38, &slots[0], &slots[1]) // units of 40
	for _, c := range []struct{ quota, room int64 }{{40, 19}, {400, 208}, {4, 0}, {1, 0}, {40, 19}, {1 << 40, 21*(1<<40)/40 - 2}} {
		share := Share{Quota: c.quota, Outage: 1, Fleet: 2}
		if room := table.Room(slotsNow, theKey, share); room != c.room {
			t.Errorf("a limit of %d: room for %d more units, want %d", c.quota, room, c.room)
		}
	}
	for i := range slots { // then Redis may still have a record of the key
		slots[i].Release(slotsNow, slotsNow, false)
	}
	for _, quota := range []int64{40, 4, 1} { // of which an eightieth is less than a unit
		if room := table.Room(slotsNow, theKey, Share{Quota: quota, Outage: 2, Fleet: 80}); room != 1 {
			t.Errorf("a limit of %d: room for %d units, want one in any case", quota, room)
		}
	}
}

// Law 13: slots that are kept in an outage are kept until Redis has been told of them. From then on they last as
// long as all other slots.
func TestLaw13KeptSlotsLastAgainOnlyAsLongAsRedisSays(t *testing.T) {
	table := NewSlots[string](func() {})
	var slot Slot[string]
	till := slotsNow + int64(fleetTTL)
	holdSlots(table, slotsNow, till, 1, &slot)
	table.Keep(slotsNow, noKey)
	now := till + int64(time.Hour)
	if !slot.Held(now) {
		t.Fatal("it was not kept")
	}
	all := table.Statements(now, RenewAll, everyKey)
	if len(all) != 1 || !all[0].Absolute || all[0].Units != 1 {
		t.Fatalf("Redis is not told what is held: %+v", all)
	}
	till = now + int64(fleetTTL)
	all[0].Answered(now, till, now, 0, 1)
	if !lasts(&slot, till-1) || lasts(&slot, till) {
		t.Errorf("held before the end: %v, at the end: %v", lasts(&slot, till-1), lasts(&slot, till))
	}
	all = table.Statements(now, RenewAll, everyKey)
	if len(all) != 1 || all[0].Absolute {
		t.Fatalf("the key is still in doubt: %+v", all)
	}
	if all[0].Answered(now, till+1, now, 1, 1); !lasts(&slot, till) || lasts(&slot, till+1) {
		t.Error("it is not renewed")
	}
	if _, units, told := slot.Release(now, now+1, true); units != 1 || !told {
		t.Errorf("%d units are released, and Redis is told at once: %v", units, told)
	}
}

// Law 13: slots that end in time do so even if other slots of the key are kept. The others stay kept.
func TestLaw13SlotsThatEndInTimeDoSoBesideOthers(t *testing.T) {
	table := NewSlots[string](func() {})
	var kept, renewed, timed, last Slot[string]
	timed.EndInTime()
	last.EndInTime()
	till := slotsNow + int64(fleetTTL)
	holdSlots(table, slotsNow, till, 1, &timed, &kept, &last, &renewed)
	gone := timed.Ended()
	table.Keep(slotsNow, noKey)
	if !timed.Held(till-1) || !last.Held(till-1) {
		t.Error("it ends too early")
	}
	if next := table.Next(noKey); next != till {
		t.Errorf("the next look is %v before the end", time.Duration(till-next))
	}
	if _, units, _ := last.Release(till-1, till, true); units != 1 {
		t.Errorf("%d units are released", units)
	}
	if timed.Held(till) || !kept.Held(till) || !renewed.Held(till) {
		t.Fatalf("at the end they are held: %v %v %v, want the two that are kept", timed.Held(till), kept.Held(till), renewed.Held(till))
	}
	select {
	case <-gone:
	default:
		t.Error("its holder is not told")
	}
	if counts := table.Counts()[theKey.Rule]; counts != (SlotCounts{Units: 2, Lost: 1}) {
		t.Errorf("counted as %+v", counts)
	}
	if next := table.Next(noKey); next < till+int64(time.Hour) {
		t.Errorf("there is something to do %v after the end", time.Duration(next-till))
	}
	all := table.Statements(till, RenewAll, everyKey)
	if len(all) != 1 || !all[0].Absolute || all[0].Units != 2 {
		t.Fatalf("Redis is not told what is held: %+v", all)
	}
	all[0].Answered(till, till+int64(fleetTTL), till, 0, 1)
	if lasts(&timed, till) || !lasts(&kept, till+1) {
		t.Error("what was lost is held again, or what was kept is not")
	}
}

// Law 13: if units are acquired while a statement of the units held is in flight, another statement follows.
func TestLaw13SlotsNotReportedYetStayInDoubt(t *testing.T) {
	table := NewSlots[string](func() {})
	var first, second Slot[string]
	holdSlots(table, slotsNow, slotsNow+int64(fleetTTL), 1, &first)
	table.Doubt(slotsNow, everyKey)
	all := table.Statements(slotsNow, RenewNone, everyKey)
	share := Share{Any: true}
	if granted, _ := table.GrantAlone(slotsNow, theKey, "owner", fleetTTL, share, 1, &second); !granted || len(all) != 1 {
		t.Fatalf("granted %v, %+v", granted, all)
	}
	all[0].Answered(slotsNow, slotsNow+int64(fleetTTL), slotsNow, 1, 1)
	all = table.Statements(slotsNow, RenewNone, everyKey)
	if len(all) != 1 || !all[0].Absolute || all[0].Units != 2 {
		t.Errorf("Redis is told %+v", all)
	}
}

// Laws 7 and 13: slots that are released while a statement of the units held is in flight do not prolong the doubt. Redis
// counts their units in excess until they are given back, which an entry does that cannot outlive the slots.
func TestLaws7And13ReleasesDoNotProlongADoubt(t *testing.T) {
	till := slotsNow + int64(fleetTTL)
	for _, test := range []struct {
		what    string
		until   int64 // from the slots' end
		surplus int64
	}{
		{"the slots last longer", -1, 2},
		{"the slots end at the same time", 0, 0},
	} {
		table := NewSlots[string](func() {})
		var first, second, third Slot[string]
		holdSlots(table, slotsNow, till, 2, &first, &second, &third)
		table.Doubt(slotsNow, everyKey)
		all := table.Statements(slotsNow, RenewNone, everyKey)
		for _, s := range []*Slot[string]{&first, &second} {
			if _, _, told := s.Release(slotsNow, slotsNow+1, true); told {
				t.Fatal("the release is sent beside the statement")
			}
		}
		surplus := all[0].Answered(slotsNow, till, till+test.until, 3, 1)
		if surplus != test.surplus || !lasts(&third, till-1) {
			t.Errorf("%s: Redis counts %d units in excess, want %d; held: %v", test.what, surplus, test.surplus, lasts(&third, till-1))
		}
		_, wait := table.Enter(theKey, "owner", fleetTTL)
		if inDoubt := wait != nil; inDoubt != (test.surplus == 0) {
			t.Errorf("%s: the key is in doubt: %v", test.what, inDoubt)
		}
		if test.surplus == 0 {
			if again := table.Statements(slotsNow, RenewNone, everyKey); len(again) != 1 || again[0].Units != 1 {
				t.Errorf("%s: Redis is told %+v", test.what, again)
			}
			continue
		}
		table.Doubt(slotsNow, everyKey)
		all[0].Held.Unchanged(slotsNow, 2) // ends the entry of Enter
		if early := table.Statements(slotsNow, RenewNone, everyKey); len(early) != 0 {
			t.Errorf("%s: beside the entry that gives the units back, Redis is told %+v", test.what, early)
		}
		all[0].Held.Unknown(slotsNow, slotsNow)
		if again := table.Statements(slotsNow, RenewNone, everyKey); len(again) != 1 || again[0].Units != 1 {
			t.Errorf("%s: after the answer was lost, Redis is told %+v", test.what, again)
		}
	}
}

// Law 13: the slots that end first are renewed first. In any other order, the time between two renewals of a key would
// be up to twice as long as renewing all keys takes.
func TestLaw13SlotsThatEndFirstAreRenewedFirst(t *testing.T) {
	table := NewSlots[string](func() {})
	const keys = 100
	for i := range keys {
		h, _ := table.Enter(HeldKey{theKey.Rule, strconv.Itoa(i)}, "owner", fleetTTL)
		h.Granted(slotsNow, slotsNow+int64(fleetTTL)+int64(i*37%keys), 1, 1, new(Slot[string]))
	}
	all := table.Statements(slotsNow, RenewAll, everyKey)
	if len(all) != keys {
		t.Fatalf("%d keys are renewed, want %d", len(all), keys)
	}
	for i, s := range all {
		if s.Held.till.Load() != slotsNow+int64(fleetTTL)+int64(i) {
			t.Fatalf("number %d is %s, whose slots end %d ns after the first", i, s.Held.Key, s.Held.till.Load()-all[0].Held.till.Load())
		}
	}
}

// Law 13: another attempt after failed renewals includes each key that was not renewed, and none of the others. Redis
// may be slow because it has so much to do.
func TestLaw13OnlyWhatWasNotRenewedIsRenewedAgain(t *testing.T) {
	table := NewSlots[string](func() {})
	till := slotsNow + int64(fleetTTL)
	holdSlots(table, slotsNow, till, 1, new(Slot[string]))
	other, _ := table.Enter(HeldKey{theKey.Rule, "other"}, "owner", fleetTTL)
	other.Granted(slotsNow, till, 1, 1, new(Slot[string]))
	now := slotsNow + int64(fleetTTL)/3
	for _, s := range table.Statements(now, RenewAll, everyKey) {
		if s.Held == other {
			s.Failed(now)
		} else {
			s.Answered(now, now+int64(fleetTTL), now, 1, 1)
		}
	}
	now += int64(fleetTTL) / 12
	if again := table.Statements(now, RenewRest, everyKey); len(again) != 1 || again[0].Held != other || again[0].Absolute {
		t.Errorf("renewed again are %+v", again)
	}
	now += int64(fleetTTL) / 4
	if again := table.Statements(now, RenewRest, everyKey); len(again) != 2 {
		t.Errorf("a third of the TTL after the first renewal, %+v are renewed", again)
	}
}

// Law 13: when Redis is told how many units are held, it keeps them for as long as after a renewal. An answer that
// is overtaken by a later one takes nothing back.
func TestLaw13StatementsExtendSlots(t *testing.T) {
	table := NewSlots[string](func() {})
	var slot Slot[string]
	till := slotsNow + int64(fleetTTL)
	holdSlots(table, slotsNow, till, 1, &slot)
	overtaken := table.Statements(slotsNow, RenewAll, everyKey)
	table.Doubt(slotsNow, everyKey)
	_, wait := table.Enter(theKey, "owner", fleetTTL)
	all := table.Statements(slotsNow, RenewAll, everyKey)
	if len(overtaken) != 1 || len(all) != 1 || !all[0].Absolute || wait == nil {
		t.Fatalf("%+v, %+v, in doubt: %v", overtaken, all, wait != nil)
	}
	all[0].Answered(slotsNow+2, till+2, slotsNow+2, 1, 1)
	if lasts(&slot, till+2) || !lasts(&slot, till+1) {
		t.Error("it does not last as long as Redis said")
	}
	select {
	case <-wait:
	default:
		t.Error("who waits for the end of the doubt is not told of it")
	}
	if overtaken[0].Answered(slotsNow+3, till+1, slotsNow+3, 1, 1); !lasts(&slot, till+1) {
		t.Error("it ends earlier, as an older answer said")
	}
	now := till + 2
	if table.Statements(now, RenewAll, everyKey); slot.Held(now) || table.Counts()[theKey.Rule] != (SlotCounts{Lost: 1}) {
		t.Errorf("at its end: held %v, %+v", slot.Held(now), table.Counts()[theKey.Rule])
	}
}

// Law 7: a key of which nothing is held is forgotten without Redis, once Redis has certainly forgotten it. The
// doubt ends then.
func TestLaw7SlotsAreForgottenWithoutRedis(t *testing.T) {
	table := NewSlots[string](func() {})
	h, _ := table.Enter(theKey, "owner", fleetTTL)
	since := slotsNow + int64(fleetDeadline)
	h.Unknown(slotsNow, since)
	_, wait := table.Enter(theKey, "owner", fleetTTL)
	gone := since + 2*int64(fleetTTL)
	nothing := func(HeldKey) bool { return false }
	if table.Statements(gone-1, RenewAll, nothing); table.Keys() != 1 || wait == nil {
		t.Errorf("%d keys before Redis has forgotten it, in doubt: %v", table.Keys(), wait != nil)
	}
	if table.Statements(gone, RenewAll, nothing); table.Keys() != 0 {
		t.Errorf("%d keys after Redis has forgotten it", table.Keys())
	}
	select {
	case <-wait:
	default:
		t.Error("who waits for the end of the doubt is not told of it")
	}
	if _, wait := table.Enter(theKey, "owner", fleetTTL); wait != nil {
		t.Error("it is still in doubt")
	}
}

// Law 13: if Redis has no record of a process, or knows of fewer units, a renewal does not make the process's slots
// last longer. Redis is told at once how many units are held.
func TestLaw13WhatRedisDoesNotKnowIsNotRenewed(t *testing.T) {
	for known, renewed := range map[int64]bool{0: false, 1: false, 2: true} {
		table := NewSlots[string](func() {})
		var one, other Slot[string]
		till := slotsNow + int64(fleetTTL)
		holdSlots(table, slotsNow, till, 1, &one, &other)
		now := slotsNow + int64(fleetTTL)/2
		all := table.Statements(now, RenewAll, everyKey)
		if len(all) != 1 || all[0].Absolute {
			t.Fatalf("to renew it: %+v", all)
		}
		all[0].Answered(now, now+int64(fleetTTL), now, known, 1)
		if lasts(&one, till) != renewed || !lasts(&one, till-1) {
			t.Errorf("Redis knew of %d units of 2: still held at its first end: %v", known, lasts(&one, till))
		}
		all = table.Statements(now, RenewNone, everyKey)
		if told := len(all) == 1 && all[0].Absolute && all[0].Units == 2; told == renewed {
			t.Errorf("Redis knew of %d units of 2, and is told %+v", known, all)
		}
	}
}

// Law 13: slots whose time is over when the grant arrives are lost from the beginning, and Redis is told that they
// are not held.
func TestLaw13SlotsThatAreGrantedTooLateAreLost(t *testing.T) {
	table := NewSlots[string](func() {})
	var one, other Slot[string]
	till := slotsNow + int64(fleetTTL)
	holdSlots(table, till, till, 1, &one, &other)
	if one.Held(till-1) || other.Held(till-1) {
		t.Error("they are held")
	}
	if c := table.Counts()[theKey.Rule]; c.Units != 0 || c.Lost != 2 {
		t.Errorf("%+v", c)
	}
	all := table.Statements(till, RenewNone, everyKey)
	if len(all) != 1 || !all[0].Absolute || all[0].Units != 0 {
		t.Errorf("Redis is told %+v", all)
	}
}

// Law 13: if the time of a key's slots is over before Redis grants another slot, they stay lost, although nobody has
// looked at them. Redis may have given their units to others, and the new record has only those of the new slot.
func TestLaw13SlotsThatExpiredAreNotHeldAgainWithANewOne(t *testing.T) {
	table := NewSlots[string](func() {})
	var expired, granted Slot[string]
	till := slotsNow + int64(fleetTTL)
	holdSlots(table, slotsNow, till, 1, &expired)
	holdSlots(table, till, till+int64(fleetTTL), 1, &granted)
	if expired.Held(till) || !granted.Held(till) {
		t.Errorf("held: %v and %v, want only the new one", expired.Held(till), granted.Held(till))
	}
	if c := table.Counts()[theKey.Rule]; c.Units != 1 || c.Lost != 1 {
		t.Errorf("%+v", c)
	}
}

// Law 11: while both Redis and the share must have room, callers that ask at the same time get the share's room
// only once.
func TestLaw11ReservedSlotsHaveTheShareOnce(t *testing.T) {
	table := NewSlots[string](func() {})
	reserve := func(what string, units, count, want, wantRoom int64) {
		t.Helper()
		if got, room := table.Reserve(slotsNow, theKey, "owner", fleetTTL, Share{Quota: 10, Outage: 7, Fleet: 2}, units, count); got != want || room != wantRoom {
			t.Errorf("%s: reserved %d, room for %d; want %d and %d", what, got, room, want, wantRoom)
		}
	}
	reserve("more than fit", 2, 9, 4, 5)
	reserve("more units than are left", 2, 1, 0, 1)
	if room := table.Room(slotsNow, theKey, Share{Quota: 10, Outage: 7, Fleet: 2}); room != 1 {
		t.Errorf("room for %d units, want 1", room)
	}
	share := Share{Quota: 10, Outage: 7, Fleet: 2}
	if granted, left := table.GrantAlone(slotsNow, theKey, "owner", fleetTTL, share, 2, new(Slot[string])); granted || left != 1 {
		t.Errorf("granted without Redis: %v, %d are left", granted, left)
	}
	holdSlots(table, slotsNow, slotsNow+int64(fleetTTL), 1, new(Slot[string])) // Redis grants one of the 4 units
	table.Unreserve(slotsNow, theKey, 4)
	reserve("what was not granted", 1, 9, 4, 4)
	table.Unreserve(slotsNow, theKey, 4)
	other := HeldKey{"jobs", "other"}
	table.Reserve(slotsNow, other, "owner", fleetTTL, Share{Quota: 10, Outage: 7, Fleet: 2}, 1, 1)
	if table.Unreserve(slotsNow, other, 1); table.Keys() != 1 {
		t.Errorf("%d keys, want only the one that is held", table.Keys())
	}
}

// A key may be in doubt before Redis is asked for the units reserved of it. The owner of the reservation then
// identifies the key to Redis.
func TestReservedKeysHaveAnOwner(t *testing.T) {
	table := NewSlots[string](func() {})
	table.Reserve(slotsNow, theKey, "owner", fleetTTL, Share{Quota: 10, Outage: 7, Fleet: 2}, 1, 1)
	table.Doubt(slotsNow, everyKey)
	all := table.Statements(slotsNow+int64(fleetTTL), RenewNone, everyKey)
	if len(all) != 1 || all[0].Owner != "owner" || all[0].TTL != fleetTTL {
		t.Errorf("Redis is told %+v", all)
	}
}

// Law 13: if a rule's TTL was shortened, its new slots last no longer than their record in Redis. That record is
// not the record of the earlier slots, if those were given back while the new ones were being acquired.
func TestLaw13SlotsOfAShorterTTLEndInTime(t *testing.T) {
	table := NewSlots[string](func() {})
	var before, after, more Slot[string]
	holdSlots(table, slotsNow, slotsNow+int64(time.Hour), 1, &before)
	acquiring, _ := table.Enter(theKey, "owner", fleetTTL)
	releasing, _, _ := before.Release(slotsNow, slotsNow+1, true)
	till := slotsNow + int64(fleetTTL)
	acquiring.Granted(slotsNow, till, 1, 1, &after)
	releasing.Unchanged(slotsNow, 1)
	if !lasts(&after, till-1) || lasts(&after, till) {
		t.Errorf("held before the end: %v, at the end: %v", lasts(&after, till-1), lasts(&after, till))
	}
	holdSlots(table, slotsNow, till-1, 1, &more) // the request for more was sent before
	if !lasts(&after, till-1) || !lasts(&more, till-1) {
		t.Error("an answer that comes late shortens what Redis has promised")
	}
}

// Units that were acquired under a long TTL stay in Redis for that long, although the TTL was shortened before they
// were given back. The key is not forgotten until then.
func TestGivenBackUnderAShorterTTL(t *testing.T) {
	table := NewSlots[string](func() {})
	var long, short Slot[string]
	h, _ := table.Enter(theKey, "owner", time.Hour)
	h.Granted(slotsNow, slotsNow+int64(time.Hour), 2, 1, &long)
	holdSlots(table, slotsNow, slotsNow+int64(fleetTTL), 1, &short)
	for _, s := range []*Slot[string]{&long, &short} {
		s.Release(slotsNow, slotsNow+1, false)
	}
	now := slotsNow + int64(time.Hour)
	table.Statements(now, RenewAll, noKey) // Redis cannot be reached
	if all := table.Statements(now, RenewAll, everyKey); len(all) != 1 || all[0].Units != 0 || !all[0].Absolute {
		t.Errorf("Redis is told %+v", all)
	}
}

// Law 12: EndAll ends all slots, also for their holders, and leaves a statement for Redis.
func TestLaw12EndAllEndsEverySlot(t *testing.T) {
	table := NewSlots[string](func() {})
	var one, other Slot[string]
	till := slotsNow + int64(fleetTTL)
	holdSlots(table, slotsNow, till, 1, &one, &other)
	first, second := one.Ended(), one.Ended()
	if ended(&one) || !one.Held(slotsNow) {
		t.Fatal("it is not held")
	}
	table.EndAll(slotsNow)
	for _, c := range []<-chan struct{}{first, second} {
		select {
		case <-c:
		default:
			t.Error("one of those who wait for the end of a slot is not told of it")
		}
	}
	for _, s := range []*Slot[string]{&one, &other} {
		if s.Held(slotsNow) || !ended(s) {
			t.Errorf("held %v, ended %v", s.Held(slotsNow), ended(s))
		}
		if _, units, told := s.Release(slotsNow, slotsNow+1, true); units != 0 || told {
			t.Errorf("released once more: %d units, %v", units, told)
		}
	}
	if c := table.Counts()[theKey.Rule]; c != (SlotCounts{}) {
		t.Errorf("%+v", c)
	}
	all := table.Statements(slotsNow, RenewNone, everyKey)
	if len(all) != 1 || !all[0].Absolute || all[0].Units != 0 {
		t.Errorf("Redis is told %+v", all)
	}
	// Callers that ask after EndAll get no slot.
	late := HeldKey{"jobs", "asked for later"}
	if h, wait := table.Enter(late, "owner", fleetTTL); h != nil || wait == nil {
		t.Errorf("entered %v", h)
	}
	share := Share{Any: true}
	if granted, left := table.GrantAlone(slotsNow, late, "owner", fleetTTL, share, 1, new(Slot[string])); granted || left != 0 {
		t.Errorf("granted without Redis: %v, %d are left", granted, left)
	}
	if n := table.Keys(); n != 1 {
		t.Errorf("%d keys, want the one of which Redis is to be told", n)
	}
}

// Law 13: a slot that was reported as lost stays lost. This is true even if a renewal was answered before the
// report and is recorded only afterwards, because its goroutine was held up.
func TestLaw13ASlotSeenToBeLostIsNotHeldAgain(t *testing.T) {
	for what, extend := range map[string]func(table *Slots[string], answered int64, s *Statement[string]){
		"a renewal": func(_ *Slots[string], answered int64, s *Statement[string]) {
			s.Answered(answered, answered+int64(fleetTTL), answered, 1, 1)
		},
		"the slots are kept": func(table *Slots[string], answered int64, _ *Statement[string]) {
			table.Keep(answered, noKey)
		},
	} {
		table := NewSlots[string](func() {})
		var slot Slot[string]
		till := slotsNow + int64(fleetTTL)
		holdSlots(table, slotsNow, till, 1, &slot)
		renewals := table.Statements(slotsNow, RenewAll, everyKey)
		if len(renewals) != 1 {
			t.Fatalf("%s: %+v", what, renewals)
		}
		if slot.Held(till) {
			t.Errorf("%s: it is held when its time is over", what)
		}
		extend(table, till-1, &renewals[0])
		if slot.Held(till) || !ended(&slot) {
			t.Errorf("%s: it is held again, after somebody has seen that it was lost", what)
		}
		if c := table.Counts()[theKey.Rule]; c.Units != 0 || c.Lost != 1 {
			t.Errorf("%s: %+v", what, c)
		}
	}
}

// Next returns the time of the next thing to do. It leaves out things that must wait for an answer, or that cannot
// be done while Redis is unreachable. Otherwise a waiter would ask again and again.
func TestNextOfSlots(t *testing.T) {
	table := NewSlots[string](func() {})
	next := func(what string, want int64) {
		t.Helper()
		if got := table.Next(everyKey); got != want {
			t.Errorf("%s: next is %v from now, want %v", what, time.Duration(got-slotsNow), time.Duration(want-slotsNow))
		}
	}
	next("nothing is held", math.MaxInt64)
	h, _ := table.Enter(theKey, "owner", fleetTTL)
	next("the first slots are asked for", math.MaxInt64)
	var one, other Slot[string]
	till := slotsNow + int64(fleetTTL)
	h.Granted(slotsNow, till, 1, 1, &one)
	next("a slot is held", till)
	later, _ := table.Enter(HeldKey{"jobs", "later"}, "owner", fleetTTL)
	later.Granted(slotsNow, till+1, 1, 1, &other)
	next("and another one for longer", till)
	h, _ = table.Enter(theKey, "owner", fleetTTL)
	table.Doubt(slotsNow+1, func(key HeldKey) bool { return key == theKey })
	next("Redis cannot be told yet what is held, because an entry is in flight", till)
	h.Unchanged(slotsNow, 1)
	next("Redis is to be told", slotsNow+1)
	if got := table.Next(func(HeldKey) bool { return false }); got != till {
		t.Errorf("Redis cannot be told, and next is %v from now", time.Duration(got-slotsNow))
	}
	all := table.Statements(slotsNow+1, RenewNone, everyKey)
	next("Redis is being told", till)
	if len(all) == 1 {
		all[0].Failed(slotsNow + 3)
	}
	next("and has not been", slotsNow+3)
}

// The zero Slot behaves like a slot that has been released.
func TestZeroSlot(t *testing.T) {
	var s Slot[string]
	if _, units, told := s.Release(slotsNow, slotsNow+1, true); s.Held(slotsNow) || !ended(&s) || units != 0 || told {
		t.Errorf("held %v, ended %v, %d units released", s.Held(slotsNow), ended(&s), units)
	}
}

// Law 13: slots of a key whose units change while a statement is on its way are renewed if Redis may have had a record
// of all of them. If it knew of fewer units than were held all the time, it has lost some: it is told how many are
// held, although units may have been acquired meanwhile.
func TestLaw13SlotsInUseAreRenewedOnlyWithTheirRecord(t *testing.T) {
	for _, test := range []struct {
		released int // slots that are released while the statement is on its way
		known    int64
		renewed  bool
	}{{0, 0, false}, {0, 1, false}, {0, 2, true}, {0, 3, true}, {1, 0, false}, {1, 1, true}, {1, 2, true}} {
		table := NewSlots[string](func() {})
		slots := make([]Slot[string], 2)
		till := slotsNow + int64(fleetTTL)
		holdSlots(table, slotsNow, till, 1, &slots[0], &slots[1])
		now := slotsNow + int64(fleetTTL)/2
		all := table.Statements(now, RenewAll, everyKey)
		if len(all) != 1 {
			t.Fatalf("to renew it: %+v", all)
		}
		var entered []*Held[string]
		for i := range test.released {
			h, _, sent := slots[1-i].Release(now, now, true)
			if !sent {
				t.Fatal("the release is not sent")
			}
			entered = append(entered, h)
		}
		h, _ := table.Enter(theKey, "owner", fleetTTL)
		all[0].Answered(now, now+int64(fleetTTL), now, test.known, 1)
		if lasts(&slots[0], till) != test.renewed || !lasts(&slots[0], till-1) {
			t.Errorf("%+v: still held at its first end: %v", test, lasts(&slots[0], till))
		}
		for _, h := range append(entered, h) {
			h.Unchanged(now, 1)
		}
		all = table.Statements(now, RenewNone, everyKey)
		if told := len(all) == 1 && all[0].Absolute && all[0].Units == int64(2-test.released); told == test.renewed {
			t.Errorf("%+v: Redis is told %+v", test, all)
		}
	}
}

// Law 13: if a renewal shows that Redis counts more units than the process holds, Redis is told how many these are.
// Otherwise the rest would leak for as long as the process holds any. While an entry is in flight, or was since the
// renewal was sent, Redis may count its units, and is not corrected.
func TestLaw13UnitsThatRedisCountsInExcessAreCorrected(t *testing.T) {
	for _, test := range []struct {
		inFlight, ends bool // an entry is in flight when the renewal is sent; it ends before the answer
		corrected      bool
	}{{false, false, true}, {true, false, false}, {true, true, false}} {
		table := NewSlots[string](func() {})
		var slot Slot[string]
		holdSlots(table, slotsNow, slotsNow+int64(fleetTTL), 1, &slot)
		var entry *Held[string]
		if test.inFlight {
			entry, _ = table.Enter(theKey, "owner", fleetTTL)
		}
		renewal := table.Statements(slotsNow, RenewAll, everyKey)
		if test.ends {
			entry.Unchanged(slotsNow, 1)
		}
		renewal[0].Answered(slotsNow, slotsNow+int64(fleetTTL), slotsNow, 2, 1)
		if test.inFlight && !test.ends {
			entry.Unchanged(slotsNow, 1)
		}
		all := table.Statements(slotsNow, RenewNone, everyKey)
		if corrected := len(all) == 1 && all[0].Absolute && all[0].Units == 1; corrected != test.corrected {
			t.Errorf("%+v: Redis is told %+v", test, all)
		}
	}
}

// Law 11: slots that were granted without Redis are reported to it as soon as it can be reached.
func TestLaw11SlotsGrantedAloneAreReported(t *testing.T) {
	woken := 0
	table := NewSlots[string](func() { woken++ })
	var s Slot[string]
	if granted, _ := table.GrantAlone(slotsNow, theKey, "owner", fleetTTL, Share{Quota: 4, Outage: 1, Fleet: 2}, 2, &s); !granted || woken == 0 {
		t.Fatalf("granted %v, woken %d times", granted, woken)
	}
	if all := table.Statements(slotsNow, RenewNone, everyKey); len(all) != 1 || !all[0].Absolute || all[0].Units != 2 || all[0].Owner != "owner" || all[0].TTL != fleetTTL {
		t.Errorf("Redis is told %+v", all)
	}
}

// Law 11: a denial says that nothing is free, so that the share in an outage has nothing beside what is held.
func TestLaw11ADenialLeavesNothingFree(t *testing.T) {
	table := NewSlots[string](func() {})
	var one, more Slot[string]
	holdSlots(table, slotsNow, slotsNow+int64(fleetTTL), 8, &one)
	h, _ := table.Enter(theKey, "owner", fleetTTL)
	h.Unchanged(slotsNow, 0)
	if granted, left := table.GrantAlone(slotsNow, theKey, "owner", fleetTTL, Share{Quota: 9, Outage: 1, Fleet: 2}, 1, &more); granted || left != 0 {
		t.Errorf("granted %v, %d left of what others hold", granted, left)
	}
}

// Law 11: slots whose time is over when Redis is lost make no share, even if nothing has noticed yet that they are lost.
func TestLaw11SlotsThatAreOverMakeNoShare(t *testing.T) {
	table := NewSlots[string](func() {})
	till := slotsNow + int64(fleetTTL)
	for range 4 {
		holdSlots(table, slotsNow, till, 6, new(Slot[string]))
	}
	if room := table.Room(till, theKey, Share{Quota: 10, Outage: 7, Fleet: 3}); room != 3 {
		t.Errorf("room for %d units, want a third of the limit", room)
	}
}

// A slot that is released when its time is over was lost, and is counted as such. No units are released.
func TestASlotReleasedAfterItsTimeWasLost(t *testing.T) {
	table := NewSlots[string](func() {})
	var slot Slot[string]
	till := slotsNow + int64(fleetTTL)
	holdSlots(table, slotsNow, till, 1, &slot)
	if _, units, told := slot.Release(till, till+1, true); units != 0 || told {
		t.Errorf("%d units are released, and Redis is told at once: %v", units, told)
	}
	if c := table.Counts()[theKey.Rule]; c != (SlotCounts{Lost: 1}) {
		t.Errorf("%+v", c)
	}
}

// Law 7: a key of which nothing is held is forgotten at once, whatever was asked of it. Otherwise keys that are denied
// would fill the memory.
func TestLaw7KeysOfWhichNothingIsHeldAreForgottenAtOnce(t *testing.T) {
	none := Share{Quota: 1, Outage: 1, Fleet: 1}
	for what, ask := range map[string]func(*Slots[string]){
		"Redis denies": func(table *Slots[string]) {
			h, _ := table.Enter(theKey, "owner", fleetTTL)
			h.Unchanged(slotsNow, 0)
		},
		"the share has no room": func(table *Slots[string]) {
			table.GrantAlone(slotsNow, theKey, "owner", fleetTTL, none, 2, new(Slot[string]))
		},
		"the room is asked for":   func(table *Slots[string]) { table.Room(slotsNow, theKey, none) },
		"nothing can be reserved": func(table *Slots[string]) { table.Reserve(slotsNow, theKey, "owner", fleetTTL, none, 2, 1) },
		"nothing is held any more, and Redis has been told": func(table *Slots[string]) {
			var slot Slot[string]
			holdSlots(table, slotsNow, slotsNow+int64(fleetTTL), 1, &slot)
			slot.Release(slotsNow, slotsNow+1, false)
			for _, s := range table.Statements(slotsNow, RenewNone, everyKey) {
				s.Answered(slotsNow, slotsNow+int64(fleetTTL), slotsNow, 1, 1)
			}
		},
	} {
		table := NewSlots[string](func() {})
		if ask(table); table.Keys() != 0 {
			t.Errorf("%s: %d keys", what, table.Keys())
		}
	}
}

// Rules of a file come and go. Of one under which nothing is held any more, only lost slots are counted on.
func TestLaw7CountsOfRulesThatAreGoneAreForgotten(t *testing.T) {
	table := NewSlots[string](func() {})
	acquire := func(rule string, till int64) *Slot[string] {
		slot := new(Slot[string])
		h, _ := table.Enter(HeldKey{rule, "key"}, "owner", fleetTTL)
		h.Granted(slotsNow, till, 1, 1, slot)
		return slot
	}
	held := acquire("held", slotsNow+int64(fleetTTL))
	acquire("lost", slotsNow) // Redis's answer comes too late
	for i := range 1000 {
		acquire(strconv.Itoa(i), slotsNow+int64(fleetTTL)).Release(slotsNow, slotsNow, false)
	}
	if c := table.Counts(); len(c) != 2 || c["held"] != (SlotCounts{Units: 1}) || c["lost"] != (SlotCounts{Lost: 1}) || !held.Held(slotsNow) {
		t.Errorf("counts %v", c)
	}
	if n := len(table.rules); n != 2 {
		t.Errorf("%d rules have counts", n)
	}
}

// Law 13: a key stays known while anything about it is in flight. A request that is granted after another one was
// denied is renewed like any other, and a statement whose answer takes very long is still received.
func TestLaw13KeysStayKnownWhileSomethingIsInFlight(t *testing.T) {
	table := NewSlots[string](func() {})
	granted, _ := table.Enter(theKey, "owner", fleetTTL)
	denied, _ := table.Enter(theKey, "owner", fleetTTL)
	denied.Unchanged(slotsNow, 0)
	var slot Slot[string]
	granted.Granted(slotsNow, slotsNow+int64(fleetTTL), 0, 1, &slot)
	if all := table.Statements(slotsNow, RenewAll, everyKey); len(all) != 1 || all[0].Units != 1 {
		t.Errorf("to renew it: %+v", all)
	}
	slot.Release(slotsNow, slotsNow+1, false)
	all := table.Statements(slotsNow, RenewNone, everyKey)
	if len(all) != 1 {
		t.Fatalf("Redis is told %+v", all)
	}
	now := slotsNow + 3*int64(fleetTTL)
	if table.Statements(now, RenewAll, everyKey); table.Keys() != 1 {
		t.Errorf("%d keys while a statement is in flight", table.Keys())
	}
	if all[0].Answered(now, now+int64(fleetTTL), now, 1, 1); table.Keys() != 0 {
		t.Errorf("%d keys after its answer", table.Keys())
	}
}

// Law 13: a key in doubt is not forgotten before Redis has certainly forgotten it. That counts from the last thing that
// Redis may have run: a renewal that it answered, or a statement that failed.
func TestLaw13KeysInDoubtAreKnownForLongEnough(t *testing.T) {
	const later = slotsNow + int64(fleetTTL)/2
	for what, last := range map[string]func(*Slots[string], *Slot[string]){
		"a renewal": func(table *Slots[string], slot *Slot[string]) {
			renewal := table.Statements(slotsNow, RenewAll, everyKey)
			renewal[0].Answered(later, later+int64(fleetTTL), later, 1, 1)
			slot.Release(later, later+1, false)
		},
		"a failed statement": func(table *Slots[string], slot *Slot[string]) {
			slot.Release(slotsNow, slotsNow+1, false)
			statement := table.Statements(slotsNow, RenewNone, everyKey)
			statement[0].Failed(later)
		},
	} {
		table := NewSlots[string](func() {})
		var slot Slot[string]
		holdSlots(table, slotsNow, slotsNow+int64(fleetTTL), 1, &slot)
		last(table, &slot)
		gone := later + goneAfter*int64(fleetTTL)
		if table.Statements(gone-1, RenewNone, noKey); table.Keys() != 1 {
			t.Errorf("%s: %d keys before Redis has forgotten it", what, table.Keys())
		}
		if table.Statements(gone, RenewNone, noKey); table.Keys() != 0 {
			t.Errorf("%s: %d keys after Redis has forgotten it", what, table.Keys())
		}
	}
}

// Law 13: a slot that Redis grants is not kept beyond its time merely because other slots of its key were kept before,
// and have been given back.
func TestLaw13KeepingEndsWithTheSlotsThatWereKept(t *testing.T) {
	table := NewSlots[string](func() {})
	var kept, granted Slot[string]
	till := slotsNow + int64(fleetTTL)
	holdSlots(table, slotsNow, till, 1, &kept)
	h, _ := table.Enter(theKey, "owner", fleetTTL)
	table.Keep(slotsNow, noKey)
	kept.Release(slotsNow, slotsNow+1, false)
	h.Granted(slotsNow, till, 1, 1, &granted)
	if !lasts(&granted, till-1) || lasts(&granted, till) {
		t.Errorf("held before the end: %v, at the end: %v", lasts(&granted, till-1), lasts(&granted, till))
	}
}

// Whoever sends statements is woken when the last entry in flight of a key in doubt has ended.
func TestAStatementIsDueWhenNothingIsInFlight(t *testing.T) {
	woken := 0
	table := NewSlots[string](func() { woken++ })
	h, _ := table.Enter(theKey, "owner", fleetTTL)
	table.Doubt(slotsNow, everyKey)
	if all := table.Statements(slotsNow, RenewNone, everyKey); len(all) != 0 {
		t.Errorf("Redis is told %+v", all)
	}
	woken = 0
	h.Unchanged(slotsNow, 1)
	if all := table.Statements(slotsNow, RenewNone, everyKey); woken == 0 || len(all) != 1 {
		t.Errorf("woken %d times, Redis is told %+v", woken, all)
	}
}

// Law 13: a key that comes into doubt once more stays in doubt until Redis has been told, and not before everything that
// was sent has had its effect. Whoever has waited since the first time is told of the end, too.
func TestLaw13DoubtIsProlonged(t *testing.T) {
	table := NewSlots[string](func() {})
	h, _ := table.Enter(theKey, "owner", fleetTTL)
	since := slotsNow + int64(fleetDeadline)
	h.Unknown(slotsNow, since)
	_, wait := table.Enter(theKey, "owner", fleetTTL)
	table.Doubt(slotsNow+1, everyKey)
	if all := table.Statements(since-1, RenewNone, everyKey); len(all) != 0 {
		t.Errorf("Redis is told %+v, and may run what was sent before afterwards", all)
	}
	all := table.Statements(since, RenewNone, everyKey)
	if len(all) != 1 || wait == nil {
		t.Fatalf("Redis is told %+v, in doubt: %v", all, wait != nil)
	}
	all[0].Answered(since, since+int64(fleetTTL), since, 0, 1)
	select {
	case <-wait:
	default:
		t.Error("who has waited since the first doubt is not told of its end")
	}
}

// A request without an answer says nothing about how many units are free.
func TestNoAnswerLeavesWhatIsFree(t *testing.T) {
	table := NewSlots[string](func() {})
	holdSlots(table, slotsNow, slotsNow+int64(fleetTTL), 8, new(Slot[string]))
	h, _ := table.Enter(theKey, "owner", fleetTTL)
	h.Unchanged(slotsNow, -1)
	if room := table.Room(slotsNow, theKey, Share{Quota: 9, Outage: 1, Fleet: 2}); room != 4 {
		t.Errorf("room for %d units, want half of the 8 that were free", room)
	}
}
