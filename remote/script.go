package remote

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"github.com/tierlimit/tierlimit/lua"
)

// Script runs the decision script. If the server has function libraries (Redis 7) and permits loading one, the
// script runs as a function, which takes a fraction of Redis's time. Otherwise it runs by EVALSHA. It is safe
// for concurrent use.
type Script struct {
	client redis.UniversalClient
	only   *node // nil on a Cluster
	nodes  nodes // of a Cluster
	// bySlot means that all keys of one call of the script must be in one slot. Every node of a Cluster
	// requires that, even the node of a Cluster with a single master.
	bySlot atomic.Bool

	library form
	script  form
	// known is the library once the server is known to have it, and not a different one of the same name. It is
	// the script, permanently, once libraries prove to be unavailable. Otherwise it is nil.
	known   atomic.Pointer[form]
	load    singleflight.Group
	foreign func(error)
	// lookFrom is 0, or, if the server did not answer when the library was looked for, the local time from which
	// on it is looked for again.
	lookFrom atomic.Int64
}

// lookAgain is how long the script runs by EVALSHA after the server did not answer when the library was looked for. Its
// answer, 150 kB, may be too large for a limit of the server's (client-output-buffer-limit, maxmemory-clients) or for
// the network. If each run looked for it, each would have a connection closed, or miss its deadline.
const lookAgain = 10 * time.Second

// ErrForeignLibrary means that a server has a function library with the Script's name but other code, or a function
// of that name in another library. Anyone who may load functions there could have loaded it, to run their own code
// with the permissions of this process's user. The Script does not call it.
var ErrForeignLibrary = errors.New("tierlimit: a function library on the server has the name of this version's library, or a function of that name, but different code: check who may load functions there, remove it with FUNCTION DELETE (FUNCTION LIST shows it), and restart")

// form is a way to run the script.
type form struct {
	verb   string // the command that runs the script
	source string
	call   invocation
}

// invocation has the first two arguments of a command that runs the script: the command's name, and the
// script's name, digest or source. They are of type any because converting a string for each call would
// allocate.
type invocation [2]any

// NewScript returns a Script that runs on client, which may be a client of one node, of Sentinel or of a
// Cluster.
func NewScript(client redis.UniversalClient) *Script {
	source := lua.DecideScript()
	sha := redis.NewScript(source).Hash()
	// Several versions of the library may share a server, so each version has its own name.
	name := "tierlimit_" + sha[:16]
	s := &Script{
		client:  client,
		library: form{"fcall", lua.DecideLibrary(name), invocation{"fcall", name}},
		script:  form{"evalsha", source, invocation{"evalsha", sha}},
	}
	_, oneNode := client.(*redis.Client)
	if cluster, ok := client.(*redis.ClusterClient); ok {
		s.nodes.cluster = cluster
		if hookedFirst(cluster) {
			cluster.AddHook(director{})
		}
	} else {
		s.only = &node{client: client, clocks: newClocks(!oneNode)}
	}
	// A client of an unknown type may be a Cluster's. Calls whose keys are all in one slot work on every
	// server.
	s.bySlot.Store(!oneNode)
	return s
}

// DivideBySlot makes each call of the script have keys of one slot only. It is for a client of one node that is
// a node of a Cluster.
func (s *Script) DivideBySlot() { s.bySlot.Store(true) }

// Divide returns the positions of the entries that each call of the script may have, in order: those of one
// slot, or all entries.
func (s *Script) Divide(entries []Entry) (parts [][]int) {
	if s.bySlot.Load() {
		return bySlot(entries)
	}
	return [][]int{positionsUpTo(len(entries))}
}

// positionsUpTo returns the positions 0 to n-1.
func positionsUpTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// HoldConnections lets the Script keep a few connections of the client's pool to each server between two runs.
// Call it before the first run, and call [Script.ReturnIdleConnections] once a second and after the last run.
func (s *Script) HoldConnections() {
	s.nodes.hold = true
	if client, ok := s.client.(*redis.Client); ok && mayHold(client) {
		s.only.held.client = client
	}
}

// ReturnIdleConnections returns the connections that the Script keeps to their pools. The Script may be run again.
func (s *Script) ReturnIdleConnections() {
	s.nodes.returnIdle()
	if s.only != nil {
		s.only.held.returnAll(false)
	}
}

// Wait waits until no call of the Script is inside the client any more. It must be called only when no run has
// begun since the last runs returned. A Cluster's client, and loading, may take longer than the context of a
// run lasts.
func (s *Script) Wait() {
	s.nodes.detached.running.Wait()
	for _, f := range []*form{&s.library, &s.script} {
		// Do joins the loading that is under way, if there is one. The error keeps other callers from taking
		// this call for a successful loading.
		_, _, _ = s.load.Do(f.verb, func() (any, error) { return nil, context.DeadlineExceeded })
	}
}

// MayHaveChanged reports whether a command has failed or was redirected since the last call of MayHaveChanged.
// If so, other masters may have the slots of a Cluster now.
func (s *Script) MayHaveChanged() bool { return s.nodes.changed.Swap(false) }

// reload makes a Cluster's client ask for the masters in the background, at most every 200 ms. It is called
// when a command has failed. By itself, go-redis asks only once a minute and when a node redirects it, which a
// dead node does not do. Until then it would send commands to the dead master although a replica has taken
// over.
func (s *Script) reload(ctx context.Context) {
	if s.nodes.cluster != nil {
		s.nodes.changed.Store(true)
		s.nodes.cluster.ReloadState(ctx)
	}
}

// nodeOf returns the node that has a key, or nil if that node is not known.
func (s *Script) nodeOf(ctx context.Context, key string) *node {
	if s.only != nil {
		return s.only
	}
	return s.nodes.of(ctx, key)
}

// nodeOfAll returns the node that has the keys of all entries, or nil if the node is not known or there are
// several.
func (s *Script) nodeOfAll(ctx context.Context, entries []Entry) *node {
	found := s.nodeOf(ctx, entries[0].redisKey())
	for i := 1; i < len(entries) && found != nil && s.only == nil; i++ {
		if !entries[i].sameKey(&entries[i-1]) && s.nodeOf(ctx, entries[i].redisKey()) != found {
			return nil
		}
	}
	return found
}

// OnForeignLibrary sets a function that is called, at most once, if a server has a different library of the
// same name (see [ErrForeignLibrary]). The Script then runs by EVALSHA, whose digest Redis computes itself.
// Call OnForeignLibrary before the first run.
func (s *Script) OnForeignLibrary(f func(error)) { s.foreign = f }

// withoutLibrary switches to EVALSHA; why is the reason.
func (s *Script) withoutLibrary(why error) {
	if s.known.Swap(&s.script) != &s.script && errors.Is(why, ErrForeignLibrary) && s.foreign != nil {
		s.foreign(why)
	}
}

// form returns the way to run the script now. Before the library is first used, it is loaded, or, if the server
// already has a library of that name, compared with that library.
func (s *Script) form(ctx context.Context) *form {
	if f := s.known.Load(); f != nil {
		return f
	}
	from := s.lookFrom.Load()
	if from != 0 && (localTime() < from || !s.lookFrom.CompareAndSwap(from, localTime()+lookAgain.Microseconds())) {
		return &s.script // it is not time yet, or another run looks for the library
	}
	err := s.loadForm(ctx, &s.library)
	if err == nil {
		return &s.library
	}
	if provesNoLibrary(err) {
		s.withoutLibrary(err)
	}
	if _, answered := serverError(err); answered {
		s.lookFrom.Store(0)
	} else {
		s.lookFrom.Store(localTime() + lookAgain.Microseconds())
	}
	return &s.script
}

// provesNoLibrary reports whether an error of loading says that there can be no library. A server may also be
// unable to load one only for now: it may be full, a replica, or without enough replicas, or may not have
// answered.
func provesNoLibrary(err error) bool {
	_, ok := serverError(err)
	return errors.Is(err, ErrForeignLibrary) || ok && KindOf(err) != Unavailable
}

// Run decides all entries, in order, and returns a reply for each. If clock is not 0, it replaces Redis's
// clock, for tests and replays only. Run returns an error if the whole call has failed. If only a part has
// failed, for example because a node of a Cluster is down, the replies of that part have an Err.
func (s *Script) Run(ctx context.Context, entries []Entry, clock int64) ([]Reply, error) {
	return s.run(ctx, s.nodeOfAll(ctx, entries), entries, clock)
}

// run implements Run for entries whose keys are on node n. A nil n means several nodes, or an unknown one.
func (s *Script) run(ctx context.Context, n *node, entries []Entry, clock int64) ([]Reply, error) {
	if n == nil || s.bySlot.Load() && len(entries) > 1 {
		return s.runParts(ctx, n, split(entries), nil, len(entries), clock)
	}
	// One call of the script can decide all entries.
	form := s.form(ctx)
	cmd := command(ctx, entries, clock, form.call)
	err := n.send(ctx, cmd)
	if err == nil {
		replies := make([]Reply, len(entries))
		if err := decode(cmd.Val(), entries, replies); err != nil {
			return nil, err
		}
		return replies, nil
	}
	if redis.HasErrorPrefix(err, "CROSSSLOT") { // the server is a node of a Cluster; nothing ran
		s.DivideBySlot()
		return s.runParts(ctx, n, split(entries), nil, len(entries), clock)
	}
	cmd.SetErr(err)
	whole := part{entries: entries, positions: positionsUpTo(len(entries)), cmd: cmd}
	return s.runParts(ctx, n, []part{whole}, form, len(entries), clock)
}

// runParts implements run for entries that need a call for each part. by is the form by which the parts were sent
// already, or nil.
func (s *Script) runParts(ctx context.Context, n *node, parts []part, by *form, entries int, clock int64) ([]Reply, error) {
	r := run{script: s, node: n, parts: parts, clock: clock}
	var again []int
	if by == nil {
		again = positionsUpTo(len(parts))
	}
	functionsRefused := false
	// A part is sent again only if its answer proves that it was not run, so nothing was charged.
	for range 4 {
		if again != nil {
			if by = &s.script; !functionsRefused {
				by = s.form(ctx)
			}
			r.send(ctx, again, by.call)
		}
		missing, refused := r.failed(isMissing), r.failed(by.isRefused)
		if again = slices.Concat(missing, refused, r.redirected(), r.divideTorn()); again == nil {
			break
		}
		if refused != nil {
			functionsRefused = true
		} else if missing != nil {
			switch err := s.loadForm(ctx, by); {
			case err == nil:
			case provesNoLibrary(err):
				s.withoutLibrary(err)
			case KindOf(err) != Timeout:
				s.known.CompareAndSwap(&s.library, nil) // this run continues by EVALSHA, and the next run looks for the library again
			}
		}
	}
	if again != nil {
		// Send the source: the script cannot be loaded, or the server's script cache was emptied again
		// meanwhile.
		r.send(ctx, again, invocation{"eval", s.script.source})
	}
	// A user who may run nothing at all, for example because the rights are just being set anew, may be given the
	// right to run functions again.
	if functionsRefused && r.failed(isAuth) == nil {
		s.withoutLibrary(nil)
	}
	if r.failed(func(error) bool { return true }) != nil {
		s.reload(ctx)
	}
	return r.replies(entries)
}

func isAuth(err error) bool { return KindOf(err) == Auth }

// split divides the entries into one part per slot of the Cluster.
func split(entries []Entry) []part {
	whole, slots := part{entries: entries, positions: positionsUpTo(len(entries))}, bySlot(entries)
	parts := make([]part, len(slots))
	for i, of := range slots {
		parts[i] = whole.some(of)
	}
	return parts
}

// bySlot returns the positions of the entries of each slot of the Cluster, in order.
func bySlot(entries []Entry) (parts [][]int) {
	return grouped(len(entries), func(i int) uint16 { return keySlot(entries[i].redisKey()) })
}
