package local

import "testing"

// Law 13: a release is sent as a release only if it can have no effect once the slots' record in Redis has expired.
// Otherwise it could take its units from a new record, made by slots that were acquired meanwhile. Redis would then
// know of fewer units than are held.
func TestLaw13AReleaseIsSentOnlyIfItCannotOutliveTheSlots(t *testing.T) {
	const now = int64(1_790_000_000_000_000_000)
	till := now + int64(fleetTTL)
	for _, test := range []struct {
		what  string
		until int64 // from the slots' end
		told  bool
	}{
		{"the slots last longer", -1, true},
		{"the slots end at the same time", 0, false},
		{"the slots end earlier", 1, false},
	} {
		woken := 0
		table := NewSlots[string](func() { woken++ })
		h, _ := table.Enter(theKey, "owner", fleetTTL)
		var slot, other Slot[string]
		h.Granted(now, till, 2, 1, &slot, &other)
		if _, units, told := slot.Release(now, till+test.until, true); units != 1 || told != test.told {
			t.Errorf("%s: %d units were released, Redis is told at once: %v", test.what, units, told)
		}
		_, wait := table.Enter(theKey, "owner", fleetTTL)
		if inDoubt := wait != nil; inDoubt == test.told {
			t.Errorf("%s: the key is in doubt: %v", test.what, inDoubt)
		}
		if test.told {
			continue
		}
		all := table.Statements(now, RenewNone, func(HeldKey) bool { return true })
		if len(all) != 1 || !all[0].Absolute || all[0].Units != 1 || woken == 0 {
			t.Errorf("%s: %d statements %+v, woken %d times", test.what, len(all), all, woken)
		}
	}
}

// A release is not sent as a release if the caller cannot send it, or while the key is in doubt. A statement of the
// units that are left replaces it.
func TestReleasesThatAreNotSent(t *testing.T) {
	for what, c := range map[string]struct{ tell, doubt, told bool }{
		"nothing is in the way": {true, false, true},
		"the caller cannot":     {false, false, false},
		"the key is in doubt":   {true, true, false},
	} {
		table := NewSlots[string](func() {})
		var slot, other Slot[string]
		holdSlots(table, slotsNow, slotsNow+int64(fleetTTL), 2, &slot, &other)
		if c.doubt {
			table.Doubt(slotsNow, everyKey)
		}
		if _, units, told := slot.Release(slotsNow, slotsNow+1, c.tell); units != 1 || told != c.told {
			t.Errorf("%s: %d units were released, Redis is told at once: %v", what, units, told)
		}
		all := table.Statements(slotsNow, RenewNone, everyKey)
		if stated := len(all) == 1 && all[0].Absolute && all[0].Units == 1; stated == c.told {
			t.Errorf("%s: Redis is told %+v", what, all)
		}
	}
}
