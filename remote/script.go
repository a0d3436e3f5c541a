package remote

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"github.com/tierlimit/tierlimit/lua"
)

// Script runs the decision script: as a function of a library where the server has
// those (Redis 7) and lets us load one, which takes a fraction of Redis's time; else
// by EVALSHA. It is safe for concurrent use.
type Script struct {
	client redis.UniversalClient
	held   heldConn
	bySlot bool

	library form
	script  form
	// plain is set for good when libraries turned out not to be had.
	plain atomic.Bool
	load  singleflight.Group
}

// form is one of the ways to run the script.
type form struct {
	verb   string // the command that runs it
	source string
	call   invocation
}

// invocation is a command that runs the script, and what it calls the script by. As
// arguments already: a string that becomes one is an allocation.
type invocation [2]any

// NewScript returns a Script that runs on client: one node, Sentinel or Cluster.
func NewScript(client redis.UniversalClient) *Script {
	_, oneNode := client.(*redis.Client)
	source := lua.DecideScript()
	sha := redis.NewScript(source).Hash()
	// Versions of this library may share a server, so its name tells them apart.
	name := "tierlimit_" + sha[:16]
	return &Script{
		client: client,
		// A client of an unknown type may be a Cluster's: keeping to one slot a
		// call is right everywhere.
		bySlot:  !oneNode,
		library: form{"fcall", lua.DecideLibrary(name), invocation{"fcall", name}},
		script:  form{"evalsha", source, invocation{"evalsha", sha}},
	}
}

// HoldConnection lets the Script hold a connection of the client's between two runs, if the
// client is one of a single node. Call it before the first run, and [Script.Rest] once a
// second and after the last.
func (s *Script) HoldConnection() {
	s.held.client, _ = s.client.(*redis.Client)
}

// Rest gives back what the Script holds. It may be run again.
func (s *Script) Rest() { s.held.rest() }

// WithoutLibrary makes the Script leave no library on the server: it is run by
// EVALSHA. Call it before the first run.
func (s *Script) WithoutLibrary() { s.plain.Store(true) }

func (s *Script) form() *form {
	if s.plain.Load() {
		return &s.script
	}
	return &s.library
}

// Run decides all entries, in order, and returns a reply for each. clock, if not
// 0, replaces Redis's clock (tests and replays only). The error is that of the
// whole call; where only a part of it failed, as on a Cluster with a node down,
// that part's replies carry an Err.
func (s *Script) Run(ctx context.Context, entries []Entry, clock int64) ([]Reply, error) {
	if !s.bySlot || len(entries) == 1 {
		return s.runPart(ctx, entries, clock)
	}
	return s.runParts(ctx, s.split(entries), len(entries), clock)
}

// runPart is Run for entries of one part, without what several need.
func (s *Script) runPart(ctx context.Context, entries []Entry, clock int64) ([]Reply, error) {
	form := s.form()
	cmd := command(ctx, entries, clock, form.call)
	switch err := s.process(ctx, cmd); {
	case err == nil:
		replies := make([]Reply, len(entries))
		if err := decode(cmd.Val(), entries, replies); err != nil {
			return nil, err
		}
		return replies, nil
	case form.isMissing(err), form.isRefused(err):
		return s.runParts(ctx, []part{{entries: entries}}, len(entries), clock)
	default:
		reloadCluster(ctx, s.client)
		return nil, withoutArguments(err)
	}
}

func (s *Script) process(ctx context.Context, cmd redis.Cmder) error {
	if s.held.client != nil {
		return s.held.process(ctx, cmd)
	}
	return s.client.Process(ctx, cmd)
}

func (s *Script) runParts(ctx context.Context, parts []part, entries int, clock int64) ([]Reply, error) {
	r := run{client: s.client, parts: parts, clock: clock, cmds: make([]chargeCmd, len(parts))}
	again := make([]int, len(parts))
	for i := range again {
		again[i] = i
	}
	// A part that was not run is sent again: its answer proves that nothing was charged.
	for range 4 {
		form := s.form()
		r.send(ctx, again, form.call)
		missing, refused := r.failed(form.isMissing), r.failed(form.isRefused)
		if again = slices.Concat(missing, refused, r.divideTorn()); again == nil {
			break
		}
		if refused != nil || missing != nil && s.loadForm(ctx, form) != nil {
			s.plain.Store(true)
		}
	}
	if again != nil {
		// It cannot be loaded, or the script cache was emptied once more in that very
		// moment: send it along.
		r.send(ctx, again, invocation{"eval", s.script.source})
	}
	if r.failed(func(error) bool { return true }) != nil {
		reloadCluster(ctx, s.client)
	}
	return r.replies(entries)
}

// reloadCluster lets a Cluster's client ask in the background who has which slots,
// because a command has failed. By itself go-redis asks when a node sends it elsewhere,
// which a dead one does not, or else once a minute: so long it would go on sending
// commands to a master whose replica has taken over. It does so at most every 200 ms.
func reloadCluster(ctx context.Context, client redis.UniversalClient) {
	if cluster, ok := client.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
}

// split puts the entries of each Cluster slot into a part.
func (s *Script) split(entries []Entry) []part {
	positions := BySlot(entries)
	parts := make([]part, len(positions))
	for i, of := range positions {
		parts[i] = part{entries: make([]Entry, len(of)), positions: of}
		for j, position := range of {
			parts[i].entries[j] = entries[position]
		}
	}
	return parts
}

// BySlot is the positions of the entries of each Cluster slot, in order.
func BySlot(entries []Entry) (parts [][]int) {
	partOf := make(map[uint16]int)
	for i := range entries {
		slot := keySlot(entries[i].redisKey())
		at, seen := partOf[slot]
		if !seen {
			at = len(parts)
			partOf[slot] = at
			parts = append(parts, nil)
		}
		parts[at] = append(parts[at], i)
	}
	return parts
}

// Load puts the script where it is run from: on every node that may need it. It
// settles which form is used.
func (s *Script) Load(ctx context.Context) error {
	if !s.plain.Load() {
		if s.loadForm(ctx, &s.library) == nil {
			return nil
		}
		s.plain.Store(true)
	}
	return s.loadForm(ctx, &s.script)
}

// loadForm loads a form on every node. Any number of callers at once load it once.
func (s *Script) loadForm(ctx context.Context, f *form) error {
	_, err, _ := s.load.Do(f.verb, func() (any, error) {
		cluster, ok := s.client.(*redis.ClusterClient)
		if !ok {
			return nil, f.loadInto(ctx, s.client)
		}
		var loaded atomic.Bool
		err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			err := f.loadInto(ctx, node)
			if err == nil {
				loaded.Store(true)
			}
			return err
		})
		if loaded.Load() {
			return nil, nil // a node that is down must not keep the others from working
		}
		return nil, err
	})
	return err
}

func (f *form) loadInto(ctx context.Context, node redis.Scripter) error {
	if f.verb == "evalsha" {
		return node.ScriptLoad(ctx, f.source).Err()
	}
	err := node.(redis.Cmdable).FunctionLoad(ctx, f.source).Err()
	if err != nil && strings.Contains(err.Error(), "already exists") {
		return nil // another instance was first
	}
	return err
}

// isMissing reports whether err says that the form was not loaded.
func (f *form) isMissing(err error) bool {
	text, ok := serverError(err)
	return ok && (strings.HasPrefix(text, "NOSCRIPT") || strings.HasPrefix(text, "Function not found"))
}

// isRefused reports whether err says that the server has no libraries (before Redis
// 7), or that this user may not run their functions.
func (f *form) isRefused(err error) bool {
	text, ok := serverError(err)
	return ok && f.verb == "fcall" &&
		(strings.HasPrefix(text, "unknown command") || strings.HasPrefix(text, "NOPERM") && strings.Contains(text, "fcall"))
}
