package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tierlimit/tierlimit/limit"
)

// Plan is a configuration, its cost, the most that it can let through, and the reason why it was
// chosen.
type Plan struct {
	Candidate
	// BytesAtRest and BytesFull are the bytes of Redis's memory that a key takes after one unit and
	// after the whole limit, see [Candidate.Bytes].
	BytesAtRest, BytesFull int64
	// Why is the reason for the choice, in plain words.
	Why string
}

// String returns the plan as one paragraph.
func (p Plan) String() string {
	units := "units"
	if p.WorstCase() == 1 {
		units = "unit"
	}
	passes := "in any window, no capacity returns late"
	switch {
	case p.Limit.IsConcurrent():
		passes = "at any time"
	case p.Late() > 0:
		passes = "in any window, capacity returns up to " + percent(p.Late()) + " of the window late"
	}
	return fmt.Sprintf("%v for %v: %s At most %d %s %s; %d bytes a key at rest and %d when full; Redis CPU %v.",
		p.Candidate, p.Limit, p.Why, p.WorstCase(), units, passes, p.BytesAtRest, p.BytesFull, p.CPU())
}

// Describe returns the plan of a configuration that was not chosen by [Choose]. Keys have names of
// nameBytes in Redis (0 for [DefaultNameBytes]). why must end with a full stop.
func Describe(c Candidate, nameBytes int, why string) Plan {
	return Plan{Candidate: c, BytesAtRest: c.AtRest(nameBytes), BytesFull: c.Full(nameBytes), Why: why}
}

// Choose returns the cheapest of the [Candidates] that meet the need: the one with the fewest bytes per
// full key. Between equals, it prefers the lightest [CPU] class, then the candidate whose capacity
// returns soonest, then the lowest worst case. If the need states a budget of memory and nothing else,
// Choose returns the most exact candidate within the budget: the one with the lowest worst case.
// Between equals, it then prefers the candidate whose capacity returns soonest, then the cheapest.
//
// The error wraps [ErrUnmet] if no candidate meets the need, [ErrInvalidNeed] or
// [limit.ErrInvalidLimit].
func Choose(l limit.Limit, n Need) (Plan, error) {
	if err := n.Validate(); err != nil {
		return Plan{}, err
	}
	all, err := Candidates(l)
	if err != nil {
		return Plan{}, err
	}
	if n.Wrong.stated && (l.IsCalendar() || l.IsConcurrent()) {
		return Plan{}, fmt.Errorf("%w: Wrong compares with the exact log, which can only count a limit with a window of a fixed length; the limit is %v", ErrInvalidNeed, l)
	}
	order, why := n.cheaper, "the cheapest with "
	if n.onlyMemory() {
		order, why = n.moreExact, "the most exact with "
	}
	slices.SortStableFunc(all, order)
	for i, c := range all {
		met, err := n.Met(c)
		if err != nil {
			return Plan{}, err
		}
		if met {
			return Describe(c, n.NameBytes, why+n.String()+n.passedOver(all[:i])+"."), nil
		}
	}
	return Plan{}, n.unmet(l, all)
}

// Met reports whether a candidate meets the need. The error comes from the method Wrong of the need's
// [Traffic], or wraps [ErrInvalidNeed] if Wrong is stated without Traffic.
func (n Need) Met(c Candidate) (bool, error) {
	reason, err := n.fails(c)
	return reason == "" && err == nil, err
}

func (n Need) cheaper(a, b Candidate) int {
	return cmp.Or(
		cmp.Compare(a.Full(n.NameBytes), b.Full(n.NameBytes)),
		cmp.Compare(a.CPU(), b.CPU()),
		cmp.Compare(a.Late(), b.Late()), // before Above: the need tolerates any Above that it allows
		cmp.Compare(a.Above(), b.Above()),
	)
}

func (n Need) moreExact(a, b Candidate) int {
	return cmp.Or(
		cmp.Compare(a.Above(), b.Above()),
		cmp.Compare(a.Late(), b.Late()),
		n.cheaper(a, b),
	)
}

// passedOver returns which candidates came before the chosen one and why they were not taken: the
// nearest of each algorithm and rounding.
func (n Need) passedOver(before []Candidate) string {
	var reasons []string
	told := make(map[limit.Algorithm]bool)
	for _, c := range slices.Backward(before) {
		kind := c.Algorithm
		if kind.Buckets() > 0 {
			kind = limit.SlidingCounter(1, kind.Rounding())
		}
		if !told[kind] {
			told[kind] = true
			reason, _ := n.fails(c)
			reasons = append(reasons, fmt.Sprintf("%v %s", c, reason))
		}
	}
	if reasons == nil {
		return ""
	}
	return "; not " + strings.Join(reasons, ", nor ")
}

// fails returns the first respect in which a candidate does not meet the need, or "" if it meets the
// need. The error is that of [Need.Met].
func (n Need) fails(c Candidate) (reason string, err error) {
	switch budget := n.bytes(); {
	case budget > 0 && c.Full(n.NameBytes) > budget:
		return fmt.Sprintf("with %d bytes", c.Full(n.NameBytes)), nil
	case !n.Above.allows(c.Above()):
		return fmt.Sprintf("which can go %s above", percent(c.Above())), nil
	case !n.late().allows(c.Late()):
		return fmt.Sprintf("which is up to %s late", percent(c.Late())), nil
	case !n.Wrong.stated:
		return "", nil
	case n.Traffic == nil:
		return "", n.Validate()
	}
	wrong, err := n.Traffic.Wrong(c)
	if err == nil && !n.Wrong.allows(wrong) {
		reason = fmt.Sprintf("which decides %s wrongly", percent(wrong))
	}
	return reason, err
}

// unmet returns the error for the case that no candidate meets the need. For each stated requirement it
// names the candidate that comes closest, so that the reader sees what to give up, and in what other
// respect that candidate fails, once. Among equally close candidates, it names the most exact one or, if
// memory is bounded, the cheapest.
func (n Need) unmet(l limit.Limit, all []Candidate) error {
	var closest []string
	nearer := n.moreExact
	if n.bytes() > 0 {
		nearer = n.cheaper
	}
	told := make(map[Candidate]bool)
	best := func(what, failing string, of func(Candidate) float64, show func(Candidate) string) { // failing: how fails begins for this requirement
		c := slices.MinFunc(all, func(a, b Candidate) int { return cmp.Or(cmp.Compare(of(a), of(b)), nearer(a, b)) })
		reason, _ := n.fails(c)
		if reason == "" {
			return
		}
		text := fmt.Sprintf("%s: %v, %s", what, c, show(c))
		if !told[c] && !strings.HasPrefix(reason, failing) {
			text += ", " + reason
		}
		told[c] = true
		closest = append(closest, text)
	}
	if n.bytes() > 0 {
		best("least memory", "with ", func(c Candidate) float64 { return float64(c.Full(n.NameBytes)) },
			func(c Candidate) string { return fmt.Sprintf("%d bytes", c.Full(n.NameBytes)) })
	}
	if n.Above.stated {
		best("least above the limit", "which can go ", Candidate.Above, func(c Candidate) string { return percent(c.Above()) })
	}
	if n.late().stated {
		best("least late", "which is up to ", Candidate.Late, func(c Candidate) string { return percent(c.Late()) })
	}
	if n.Wrong.stated {
		wrong := func(c Candidate) float64 {
			part, err := n.Traffic.Wrong(c)
			if err != nil {
				return 1
			}
			return part
		}
		best("fewest wrong", "which decides ", wrong, func(c Candidate) string { return percent(wrong(c)) })
	}
	return fmt.Errorf("%w: %v with %s; %s", ErrUnmet, l, n, strings.Join(closest, "; "))
}
