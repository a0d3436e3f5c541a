package local

import "testing"

// Without a renewal, Redis is told only of keys in doubt, even if slots are about to end. A renewal leaves out keys of
// which nothing is held.
func TestOnlyWhatIsHeldIsRenewed(t *testing.T) {
	table := NewSlots[string](func() {})
	var slot Slot[string]
	till := slotsNow + int64(fleetTTL)
	holdSlots(table, slotsNow, till, 1, &slot)
	if all := table.Statements(till-1, RenewNone, everyKey); len(all) != 0 {
		t.Errorf("without a renewal Redis is told %+v", all)
	}
	other := HeldKey{theKey.Rule, "asked for"}
	table.Enter(other, "owner", fleetTTL)
	if all := table.Statements(till-1, RenewAll, everyKey); len(all) != 1 || all[0].Held.HeldKey != theKey {
		t.Errorf("a renewal tells Redis %+v", all)
	}
}

// Law 13: Redis is not told that slots are held whose time is over, even if nobody has noticed that yet. Their units may
// have been granted to others.
func TestLaw13SlotsWhoseTimeIsOverAreNotStated(t *testing.T) {
	table := NewSlots[string](func() {})
	var slot Slot[string]
	till := slotsNow + int64(fleetTTL)
	holdSlots(table, slotsNow, till, 1, &slot)
	table.Doubt(slotsNow, everyKey)
	if all := table.Statements(till, RenewAll, everyKey); len(all) != 1 || all[0].Units != 0 {
		t.Errorf("Redis is told %+v", all)
	}
}

// Law 13: a renewal of which Redis knew nothing extends nothing. Slots that were acquired meanwhile may have been lost
// with Redis's data since.
func TestLaw13ARenewalOfNothingExtendsNothing(t *testing.T) {
	table := NewSlots[string](func() {})
	var first, second Slot[string]
	till := slotsNow + int64(fleetTTL)
	holdSlots(table, slotsNow, till, 1, &first)
	all := table.Statements(slotsNow, RenewAll, everyKey)
	released, _, sent := first.Release(slotsNow, slotsNow+1, true)
	acquired, _ := table.Enter(theKey, "owner", fleetTTL) // before the release has ended, so the key stays the same
	if len(all) != 1 || !sent || acquired != released {
		t.Fatalf("Redis is told %+v; the release is sent: %v", all, sent)
	}
	released.Unchanged(slotsNow, 2)
	acquired.Granted(slotsNow, till, 1, 1, &second)
	all[0].Answered(slotsNow, till+1, slotsNow, 0, 2)
	if !lasts(&second, till-1) || lasts(&second, till) {
		t.Errorf("held before its end: %v, at its end: %v", lasts(&second, till-1), lasts(&second, till))
	}
}

// Law 13: a slot that ends in time does so while Redis is being told of it. Redis may have given its units to others
// before it received the statement.
func TestLaw13SlotsEndInTimeWhileRedisIsTold(t *testing.T) {
	table := NewSlots[string](func() {})
	var kept, timed Slot[string]
	timed.EndInTime()
	till := slotsNow + int64(fleetTTL)
	holdSlots(table, slotsNow, till, 1, &kept, &timed)
	table.Keep(slotsNow, noKey)
	all := table.Statements(till-1, RenewNone, everyKey)
	if len(all) != 1 || all[0].Units != 2 {
		t.Fatalf("Redis is told %+v", all)
	}
	if surplus := all[0].Answered(till, till+int64(fleetTTL), till+1, 2, 0); surplus != 1 {
		t.Errorf("%d units are to be given back, want the one that has ended", surplus)
	}
	if timed.Held(till) || !kept.Held(till) {
		t.Errorf("held at the end: %v and %v, want only the one that is kept", timed.Held(till), kept.Held(till))
	}
}

// Law 13: slots that end in time do so whatever other slots of the key were released before.
func TestLaw13ReleasesLeaveSlotsThatEndInTime(t *testing.T) {
	table := NewSlots[string](func() {})
	var kept, timed, released Slot[string]
	timed.EndInTime()
	till := slotsNow + int64(fleetTTL)
	holdSlots(table, slotsNow, till, 1, &kept, &timed, &released)
	table.Keep(slotsNow, noKey)
	released.Release(slotsNow, slotsNow+1, true)
	if next := table.Next(noKey); next != till {
		t.Errorf("there is something to do %d ns after the end", next-till)
	}
	table.Keep(till, noKey)
	if lasts(&timed, till) || !lasts(&kept, till) {
		t.Errorf("held after the end: %v and %v, want only the one that is kept", lasts(&timed, till), lasts(&kept, till))
	}
}

// A slot's end is not missed because Redis is to be told of the key only later.
func TestNextIsTheEndOfASlotInDoubt(t *testing.T) {
	table := NewSlots[string](func() {})
	var slot Slot[string]
	till := slotsNow + int64(fleetTTL)
	holdSlots(table, slotsNow, till, 1, &slot)
	table.Doubt(till+1, everyKey)
	if next := table.Next(everyKey); next != till {
		t.Errorf("next is %d ns after the slot's end", next-till)
	}
}
