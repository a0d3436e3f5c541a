package metrics

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// lines returns all values of the metrics, like "name{label=value} 1". The labels' values have to be as many as their
// names.
func lines(t *testing.T, s *tiered.Stats) (lines []string) {
	t.Helper()
	for _, m := range All() {
		if m.Kind == Histogram {
			h := m.Histogram(s)
			lines = append(lines, fmt.Sprintf("%s sum %v", m.Name, h.Sum))
			continue
		}
		m.Read(s, func(value float64, labels ...string) {
			if len(labels) != len(m.Labels) {
				t.Errorf("%s has the labels %q, with the values %q", m.Name, m.Labels, labels)
				return
			}
			var pairs []string
			for i, name := range m.Labels {
				pairs = append(pairs, name+"="+labels[i])
			}
			lines = append(lines, strings.TrimSuffix(fmt.Sprintf("%s{%s}", m.Name, strings.Join(pairs, ",")), "{}")+fmt.Sprintf(" %v", value))
		})
	}
	slices.Sort(lines)
	return lines
}

// Each metric reports the field of the statistics that it is named after, with the labels that docs/operating.md
// describes. Each number occurs once, so that no metric can report another's.
func TestEachMetricReportsItsOwnField(t *testing.T) {
	s := &tiered.Stats{
		State:       tiered.Outage,
		TimeInState: map[tiered.State]time.Duration{tiered.Healthy: 1500 * time.Millisecond, tiered.Outage: 12 * time.Second, tiered.Settling: 13 * time.Second},
		FleetSize:   14,
		Shards: []tiered.ShardStats{
			{State: tiered.Settling, Breaker: tiered.BreakerHalfOpen}, {State: tiered.Outage, Breaker: tiered.BreakerOpen},
			{State: tiered.Healthy}, {State: tiered.Healthy}, {State: tiered.Healthy},
		},
		Rules: []tiered.RuleStats{
			{Name: "a", Decisions: []tiered.TierStats{{Tier: limit.TierLocal, Allowed: 21, Denied: 22, HeldBack: 23}},
				Errors: tiered.ErrorStats{Invalid: 24, Cancelled: 25, Closed: 26, Other: 27},
				Shadow: &tiered.ShadowStats{Agreed: 31, WronglyAllowed: 32, WronglyDenied: 33, LeftOutQueueFull: 34, LeftOutError: 35}},
			{Name: "b", DryRun: []tiered.TierStats{{Tier: limit.TierRedis, Allowed: 41, Denied: 42}}},
		},
		Trips:            tiered.TripStats{Seconds: tiered.Histogram{Sum: 51}, Calls: tiered.Histogram{Sum: 52}, Errors: map[string]uint64{"timeout": 53}},
		Missed:           tiered.MissedStats{NoRoom: 61, NotInTime: 62, OwnTime: 63},
		Outages:          71,
		MemoryLosses:     72,
		UnchargedUnits:   73,
		ChargedBackUnits: 74, RememberedDenials: 75, LeasedUnits: 76,
		Holds: tiered.HoldStats{Open: 81, Units: 82, Unsettled: 83, Settled: 84, Late: 85, Reclaimed: 86, Lost: 87},
		Slots: tiered.SlotStats{Units: 91, Lost: 92},
	}
	want := strings.Split(`tierlimit_amnesia_total 72
tierlimit_breaker_opened_total 71
tierlimit_breaker_state 2
tierlimit_charged_back_units_total 74
tierlimit_decision_errors_total{rule=a,reason=cancelled} 25
tierlimit_decision_errors_total{rule=a,reason=closed} 26
tierlimit_decision_errors_total{rule=a,reason=invalid} 24
tierlimit_decision_errors_total{rule=a,reason=other} 27
tierlimit_decision_errors_total{rule=b,reason=cancelled} 0
tierlimit_decision_errors_total{rule=b,reason=closed} 0
tierlimit_decision_errors_total{rule=b,reason=invalid} 0
tierlimit_decision_errors_total{rule=b,reason=other} 0
tierlimit_decisions_total{rule=a,tier=local,outcome=allowed} 21
tierlimit_decisions_total{rule=a,tier=local,outcome=denied} 22
tierlimit_decisions_total{rule=a,tier=local,outcome=held_back} 23
tierlimit_decisions_total{rule=b,tier=redis,outcome=would_allow} 41
tierlimit_decisions_total{rule=b,tier=redis,outcome=would_deny} 42
tierlimit_fleet_size 14
tierlimit_held_units 91
tierlimit_late_settlements_total 85
tierlimit_leased_units 76
tierlimit_lost_settlements_total 87
tierlimit_lost_slots_total 92
tierlimit_missed_decisions_total{reason=no_room} 61
tierlimit_missed_decisions_total{reason=not_in_time} 62
tierlimit_missed_decisions_total{reason=own_time} 63
tierlimit_open_hold_units 82
tierlimit_open_holds 81
tierlimit_reclaimed_holds_total 86
tierlimit_redis_errors_total{kind=timeout} 53
tierlimit_redis_trip_calls sum 52
tierlimit_redis_trip_seconds sum 51
tierlimit_remembered_denials 75
tierlimit_settlements_total 84
tierlimit_shadow_decisions_total{rule=a,result=agreed} 31
tierlimit_shadow_decisions_total{rule=a,result=wrongly_allowed} 32
tierlimit_shadow_decisions_total{rule=a,result=wrongly_denied} 33
tierlimit_shadow_left_out_total{rule=a,reason=error} 35
tierlimit_shadow_left_out_total{rule=a,reason=queue_full} 34
tierlimit_shards{state=healthy} 3
tierlimit_shards{state=outage} 1
tierlimit_shards{state=settling} 1
tierlimit_state 1
tierlimit_state_seconds_total{state=healthy} 1.5
tierlimit_state_seconds_total{state=outage} 12
tierlimit_state_seconds_total{state=settling} 13
tierlimit_uncharged_units 73
tierlimit_waiting_settlements 83`, "\n")
	for _, line := range diff(lines(t, s), want) {
		t.Error(line)
	}
}

// Of several files, the metrics report all loads together, whether all files are in force, and the oldest rules.
func TestSeveralRulesFilesAreReportedTogether(t *testing.T) {
	old, recent := time.Unix(1_000_000_000, 500_000_000), time.Unix(2_000_000_000, 0)
	of := func(sources ...tiered.SourceStats) (found []string) {
		for _, line := range lines(t, &tiered.Stats{Sources: sources}) {
			if strings.HasPrefix(line, "tierlimit_rules_file") {
				found = append(found, line)
			}
		}
		return found
	}
	good := tiered.SourceStats{Loads: 3, InForce: true, LastSuccess: recent}
	bad := tiered.SourceStats{Loads: 1, Failures: 2, LastSuccess: old}
	for _, c := range []struct {
		got             []string
		ok, failed      int
		inForce, oldest string
	}{
		{of(good), 3, 0, "1", "2e+09"},
		{of(good, bad), 4, 2, "0", "1.0000000005e+09"},
		{of(bad, good), 4, 2, "0", "1.0000000005e+09"},
		{of(good, tiered.SourceStats{Failures: 1}), 3, 1, "0", "0"}, // one that was never loaded
	} {
		want := []string{
			"tierlimit_rules_file_last_load_successful " + c.inForce,
			"tierlimit_rules_file_last_success_timestamp_seconds " + c.oldest,
			fmt.Sprintf("tierlimit_rules_file_loads_total{result=failed} %d", c.failed),
			fmt.Sprintf("tierlimit_rules_file_loads_total{result=ok} %d", c.ok),
		}
		for _, line := range diff(c.got, want) {
			t.Error(line)
		}
	}
}

// diff returns a line for each difference.
func diff(got, want []string) (lines []string) {
	count := make(map[string]int)
	for _, line := range got {
		count[line]++
	}
	for _, line := range want {
		count[line]--
	}
	for _, line := range slices.Sorted(maps.Keys(count)) {
		switch n := count[line]; {
		case n > 0:
			lines = append(lines, "unexpected: "+line)
		case n < 0:
			lines = append(lines, "missing: "+line)
		}
	}
	return lines
}
