package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/page"
	"github.com/tierlimit/tierlimit/internal/state"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/remote"
	"github.com/tierlimit/tierlimit/tiered"
)

const showUsage = `Usage: tierlimit show [flags] RULE KEY
       tierlimit show -rules FILE [flags] KEY

Shows what Redis holds for a key under a rule, or under all rules of a rules file: how
many units count, when they were charged and when they leave, which units are on lease or
held, by whom and until when, and which charges after an outage were made. It only
reads, and never goes through all keys (no SCAN).

KEY is the key that the service passes to the limiter, like "user 17". Some services compose
keys, for example with httplimit; give the composed key, as "tierlimit top" prints it.

Flags:
`

func runShow(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	var f lookFlags
	set := newFlags("show")
	f.add(set)
	if err := parseFlags(set, args, showUsage, 2, stdout); err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	var file *rules
	if f.file != "" {
		if file, err = loadRules(f.file); err != nil {
			return err
		}
		defer file.close()
	}
	var names []string
	key := set.Arg(set.NArg() - 1)
	switch {
	case set.NArg() == 0:
		return usageError{errors.New("no key given")}
	case set.NArg() == 2:
		names = set.Args()[:1]
	case file == nil:
		return usageError{fmt.Errorf("the key %q is given without a rule: give RULE KEY, or the rules by -rules FILE", key)}
	default:
		names = file.names
	}
	client, err := f.connect(stderr)
	if err != nil {
		return err
	}
	defer client.Close()
	for i, name := range names {
		if err := remote.CheckRuleName(name); err != nil {
			return usageError{err}
		}
		if i > 0 {
			fmt.Fprintln(stdout)
		}
		l := f.limit
		if file != nil {
			if l, err = file.limitOf(name, key); err != nil {
				return err
			}
		}
		k := keyShown{rule: name, said: key, limit: l, redisKey: f.keyspace.Key(name, remote.NewUserKey(key))}
		if err := k.read(ctx, client, f.keyspace); err != nil {
			return fmt.Errorf("reading %q: %w", k.redisKey, explainedToLook(err, f.prefix))
		}
		if err := k.print(stdout); err != nil {
			return err
		}
	}
	return nil
}

// keyShown is everything that Redis holds for a key under a rule.
type keyShown struct {
	rule, said, redisKey string
	limit                limit.Limit // zero if not known

	state.Key
	broken  error // why the state cannot be decoded
	leases  []state.Lease
	lost    error // why the leases cannot be decoded
	holds   []state.Hold
	unheld  error // why the holds cannot be decoded
	markers []marker
}

type marker struct {
	instance string
	sequence int64
}

func windowOf(l limit.Limit) int64 {
	if l == (limit.Limit{}) || l.IsCalendar() || l.IsConcurrent() {
		return 0
	}
	return l.Window().Microseconds()
}

func (k *keyShown) read(ctx context.Context, client redis.UniversalClient, keyspace remote.Keyspace) error {
	node, err := nodeOf(ctx, client, k.redisKey)
	if err != nil {
		return err
	}
	related := keyspace.Related(k.redisKey)
	if k.limit.IsConcurrent() {
		k.redisKey = related.Slots
	}
	if err := k.readState(ctx, node); err != nil {
		return err
	}
	if k.limit == (limit.Limit{}) && k.State == nil && k.broken == nil { // the rule's limit may be a concurrency limit
		slots := keyShown{redisKey: related.Slots}
		if err := slots.readState(ctx, node); err != nil {
			return err
		}
		if slots.State != nil || slots.broken != nil {
			k.redisKey, k.Key, k.broken = slots.redisKey, slots.Key, slots.broken
		}
	}
	k.holds, k.unheld = readBeside(ctx, node, related.Holds, state.DecodeHolds)
	k.leases, k.lost = readBeside(ctx, node, related.Lease, state.DecodeLeases)
	// The markers are found through the instances that are in the fleet now.
	instances, err := client.ZRange(ctx, related.Fleet, 0, 999).Result()
	if err != nil {
		return nil // on a Cluster, or without permission: there is nothing to show
	}
	for _, instance := range instances {
		text, err := node.Get(ctx, related.Marker(instance)).Result()
		if err != nil {
			continue
		}
		if sequence, err := state.DecodeMarker(text); err == nil {
			k.markers = append(k.markers, marker{instance, sequence})
		}
	}
	return nil
}

// readBeside reads and decodes a key beside the key of the state, if there is one.
func readBeside[T any](ctx context.Context, node redis.Cmdable, key string, decode func([]byte) ([]T, error)) ([]T, error) {
	raw, err := node.Get(ctx, key).Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return decode(raw)
}

// readState reads the state. If the state cannot be decoded, it stores the reason in k.broken.
func (k *keyShown) readState(ctx context.Context, node redis.Cmdable) (err error) {
	k.Key, err = state.Read(ctx, node, k.redisKey, windowOf(k.limit))
	if errors.Is(err, state.ErrDamaged) || errors.Is(err, state.ErrUnknown) {
		k.broken, err = err, nil
	}
	return err
}

func (k *keyShown) print(w io.Writer) error {
	fmt.Fprintf(w, "rule %q, key %q\n  Redis key    %q\n", k.rule, k.said, k.redisKey)
	if k.limit != (limit.Limit{}) {
		fmt.Fprintf(w, "  limit        %v\n", k.limit)
	}
	switch {
	case k.broken != nil:
		fmt.Fprintf(w, "  state        %v\n", k.broken)
	case k.State == nil:
		fmt.Fprint(w, "  state        none: nothing was charged, or all units have left\n")
	default:
		k.printState(w)
	}
	if k.lost != nil {
		fmt.Fprintf(w, "  leases       %v\n", k.lost)
	}
	for _, lease := range k.leases {
		if k.State != nil && lease.Ends > k.State.Now {
			fmt.Fprintf(w, "  on lease     %s, counted as used; lease %016x ends in %s\n", page.Count(lease.Units, "unit"), lease.ID, duration(lease.Ends-k.State.Now))
		}
	}
	if k.unheld != nil {
		fmt.Fprintf(w, "  holds        %v\n", k.unheld)
	}
	for _, m := range k.markers {
		fmt.Fprintf(w, "  marker       charges of instance %q after an outage, up to number %d\n", m.instance, m.sequence)
	}
	if k.State != nil && k.broken == nil {
		units := k.printUnits
		if k.State.Holders != nil {
			units = k.printHolders
		}
		if err := units(w); err != nil {
			return err
		}
	}
	return k.printHolds(w)
}

// mostUnits returns how many units of a limit can be used before a request is denied. Under GCRA that is the burst.
func mostUnits(l limit.Limit, s *state.State) int64 {
	if s.Algorithm == limit.GCRA().Name() {
		return l.Burst()
	}
	return l.Quota()
}

func (k *keyShown) printState(w io.Writer) {
	s := k.State
	fmt.Fprintf(w, "  state        %s: %s", s.Algorithm, s.Encoding)
	if s.Bytes > 0 {
		fmt.Fprintf(w, ", %s", page.Count(s.Bytes, "byte"))
	}
	fmt.Fprintln(w)
	switch window := time.Duration(s.Window) * time.Microsecond; {
	case s.Quota > 0:
		fmt.Fprintf(w, "  written for  %v\n", limit.Per(s.Quota, window))
	case s.Window > 0:
		fmt.Fprintf(w, "  written for  a window of %s in %s\n", duration(s.Window), page.Count(s.Buckets, "sub-window"))
	}
	fmt.Fprintf(w, "  used         %s", page.Count(s.Used(), "unit"))
	switch most := mostUnits(k.limit, s); {
	case k.limit == (limit.Limit{}):
	case most != k.limit.Quota():
		fmt.Fprintf(w, " of %d, the burst", most)
	case s.Algorithm == limit.GCRA().Name() && !k.limit.HasBurst() && most > tiered.DefaultCounterUpTo:
		fmt.Fprintf(w, " of %d, or of the burst if the rule has one or chose one: -limit %v,burst=UNITS", most, k.limit)
	default:
		fmt.Fprintf(w, " of %d", most)
	}
	last := "last charge"
	if s.Holders != nil {
		last = "last change" // of the units that a process holds, or of the time until which it holds them
	}
	fmt.Fprintf(w, "\n  %s  %s ago\n", last, duration(s.Now-s.Newest))
	if k.Expires > 0 {
		fmt.Fprintf(w, "  expires      in %s\n", duration(k.Expires.Microseconds()))
	} else {
		fmt.Fprint(w, "  expires      never: this library does not write such keys\n")
	}
	if s.Offset > 0 {
		fmt.Fprintf(w, "  clock        %s ahead of Redis's, which has stepped back\n", duration(s.Offset))
	}
}

// maxLines is the largest number of groups of units that are printed. If there are more, neighbors are
// combined.
const maxLines = 12

func (k *keyShown) printUnits(w io.Writer) error {
	groups := together(k.State.Units)
	if len(groups) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "  units\tcharged\tleave")
	for _, u := range groups {
		charged := "-" // the state does not say when
		if u.ChargedFrom > 0 {
			charged = span(k.State.Now-u.ChargedUntil, k.State.Now-u.ChargedFrom) + " ago"
		}
		leave := "in " + span(max(0, u.LeavesFrom-k.State.Now), u.LeavesUntil-k.State.Now)
		fmt.Fprintf(t, "  %d\t%s\t%s\n", u.Count, charged, leave)
	}
	return t.Flush()
}

// together combines neighboring groups, so that there are at most maxLines.
func together(units []state.Units) (groups []state.Units) {
	size := (len(units) + maxLines - 1) / maxLines
	for from := 0; from < len(units); from += size {
		part := units[from:min(from+size, len(units))]
		group := part[0]
		for _, u := range part[1:] {
			group.Count += u.Count
			group.ChargedUntil, group.LeavesUntil = u.ChargedUntil, u.LeavesUntil
		}
		groups = append(groups, group)
	}
	return groups
}

func span(from, until int64) string {
	if a, b := duration(from), duration(until); a != b {
		return a + " to " + b
	}
	return duration(until)
}

// duration formats a time in µs for people: to about three digits, and in the way windows are written
// ("14h").
func duration(µs int64) string {
	d := time.Duration(min(µs, math.MaxInt64/1000)) * time.Microsecond // a damaged value may be larger
	switch {
	case d >= time.Hour:
		d = d.Round(time.Minute)
	case d >= time.Minute:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case d >= 10*time.Millisecond:
		d = d.Round(time.Millisecond)
	}
	return limit.Per(1, d).WindowString()
}
