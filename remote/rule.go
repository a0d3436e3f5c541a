package remote

import (
	"fmt"
	"time"

	"github.com/tierlimit/tierlimit/gcra"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Rule is a limit under an algorithm, encoded once for the script. It is safe for
// concurrent use.
type Rule struct {
	packed     packedRule
	packedText any // packed, as a string
	quota      int64
	window     time.Duration
	rate       gcra.Rate // of a GCRA rule
	// unitWork is the script's work per unit of cost, in units of a ring; it is 0 unless the rule
	// is a log, which writes each unit.
	unitWork int64
	// calendar is set for rules with calendar windows, whose packed form changes with time.
	calendar *calendar
	slots    bool // made by NewSlotsRule

	keys     Keyspace
	name     string   // "" if an Entry's Key is already its Redis key
	observer Observer // nil: nobody is notified of replies
}

// packedRule is the rule in the script's format: algorithm (1 byte), quota (7), window (7), and the
// algorithm's parameters.
type packedRule [lua.RuleBytes]byte

func (p *packedRule) put(at int, n int64, bytes int) { appendInt(p[at:at], n, bytes) }

func (p *packedRule) setWindow(µs int64) { p.put(8, µs, 7) }

// setParameter writes one of the parameters, at the given offset in them.
func (p *packedRule) setParameter(at int, n int64, bytes int) {
	p.put(lua.RuleBytes-lua.ParameterBytes+at, n, bytes)
}

// NewRule encodes a limit under an algorithm, which must not be automatic. It returns an error if
// they cannot be combined.
func NewRule(l limit.Limit, a limit.Algorithm) (*Rule, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if err := a.Validate(); err != nil {
		return nil, err
	}
	if l.IsConcurrent() || a.Same(limit.Concurrency()) {
		return nil, fmt.Errorf("%w: algorithm %v is for concurrency limits, and for no others; the limit is %v", limit.ErrInvalidAlgorithm, limit.Concurrency(), l)
	}
	if l.IsCalendar() && a != limit.FixedWindow() {
		return nil, fmt.Errorf("%w: %v cannot count calendar windows, and the limit is %v: use a fixed window", limit.ErrInvalidAlgorithm, a, l)
	}
	r := &Rule{quota: l.Quota(), window: l.Window()}
	r.packed.put(1, l.Quota(), 7)
	r.packed.setWindow(l.Window().Microseconds())
	code := 0
	switch {
	case a.Same(limit.SlidingLog()):
		code, r.unitWork = lua.SlidingLog, 1
		most := int64(lua.MaxLogUnits)
		if a == limit.SlidingLogZSet() {
			code, r.unitWork, most = lua.SlidingLogZSet, lua.MaxLogUnits/lua.MaxLogZSetUnits, lua.MaxLogZSetUnits
		}
		if l.Quota() > most {
			return nil, fmt.Errorf("%w: a %v can hold at most %d units, and the limit is %v: use a sliding counter or GCRA", limit.ErrInvalidAlgorithm, a, most, l)
		}
	case a.Same(limit.GCRA()):
		code = lua.GCRA
		r.rate = gcra.NewRate(l)
		whole, num, den := r.rate.Interval()
		r.packed.setParameter(0, r.rate.Burst(), 7)
		r.packed.setParameter(7, whole*den+num, 6)
		r.packed.setParameter(13, den, 6)
	case a.Same(limit.FixedWindow()):
		code = lua.FixedWindow
		if l.IsCalendar() {
			r.calendar = &calendar{limit: l}
		}
	case a.IsAutomatic():
		return nil, fmt.Errorf("%w: automatic must be resolved first", limit.ErrInvalidAlgorithm)
	default:
		code = lua.SlidingCounter
		r.packed.setParameter(0, int64(a.Buckets()), 2)
		if a.Rounding() == limit.Strict {
			r.packed.setParameter(2, 1, 1)
		}
	}
	r.packed.put(0, int64(code), 1)
	r.packedText = string(r.packed[:])
	return r, nil
}

// Named returns a copy of the rule for entries whose Key is a user key: keys makes their Redis keys under that
// name. observer, which may be nil, is notified of their replies.
func (r *Rule) Named(keys Keyspace, name string, observer Observer) *Rule {
	named := *r
	named.keys, named.name, named.observer = keys, name, observer
	return &named
}

func (r *Rule) redisKey(key string) string {
	if r.name == "" {
		return key
	}
	if r.slots {
		return r.keys.Key(r.name, UserKey(key)) + slotsSuffix
	}
	return r.keys.Key(r.name, UserKey(key))
}

func (r *Rule) isGCRA() bool { return r.rate.Burst() > 0 }

// text returns the current packed rule, as an argument of a command.
func (r *Rule) text() any {
	if r.calendar == nil {
		return r.packedText
	}
	return r.at(0)[:]
}

// at returns the packed rule at a moment of virtual time, in µs; 0 means now.
func (r *Rule) at(clock int64) *packedRule {
	if r.calendar == nil {
		return &r.packed
	}
	now := time.UnixMicro(clock)
	if clock == 0 {
		now = time.Now()
	}
	return r.calendar.packed(r.packed, now)
}

// Work returns the number of units that the script writes one by one for a decision of the given
// cost.
func (r *Rule) Work(cost int64) int64 { return cost * r.unitWork }
