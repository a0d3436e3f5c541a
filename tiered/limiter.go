package tiered

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/inspect"
	"github.com/tierlimit/tierlimit/internal/lease"
	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/internal/outage"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/local"
	"github.com/tierlimit/tierlimit/local/ledger"
	"github.com/tierlimit/tierlimit/remote"
)

// Settings without an option.
const (
	// denialLife bounds how long a denial is remembered, because capacity may come back earlier than
	// Redis said (law 2).
	denialLife = time.Second
	// maxBatch and maxWork bound how long one trip keeps Redis busy: 128 decisions, or as many log units
	// as Redis writes in a few milliseconds.
	maxBatch = 128
	maxWork  = 100_000
	// inFlight is the largest number of trips in flight at the same time.
	inFlight = 8
	// returnPart sets a part of the deadline aside for the way back: a call that Redis has not answered is decided
	// without it 1/returnPart of the deadline early. If hundreds of calls end at once, it takes milliseconds until
	// the last of their goroutines gets a processor (law 7). docs/measurements.md has what else was tried.
	returnPart = 16
	// beforeStart is the time at which a limiter's clock begins, so that a window before the start
	// is not negative.
	beforeStart = 2 * limit.MaxWindow
)

// Limiter enforces limits. Make one per process with [New] or [Open], and close it at the end. It
// is safe for concurrent use.
type Limiter struct {
	config    config
	client    redis.UniversalClient
	keys      remote.Keyspace
	hasher    local.Hasher
	denials   *local.Denials
	ledger    *ledger.Ledger[*outage.Rule]
	shards    *outage.Shards
	shard     *outage.Shard // the only one, nil on a Cluster
	leases    *lease.Keeper
	holds     holdKeeper
	slots     slotKeeper
	fleetFile *fleetFile // nil: there is none
	metrics   *counters
	log       *quietLog
	start     time.Time

	closed     atomic.Bool
	ended      chan struct{}   // closed when Close has ended
	ctx        context.Context // ends with Close
	stop       context.CancelFunc
	background sync.WaitGroup

	shadows     sync.Once // starts compareAll
	comparisons chan comparison
	script      *remote.Script
	batching    remote.Options

	lines lines // queues of callers of Wait and AcquireWait

	watcher    atomic.Pointer[inspect.Watcher] // nil: decisions are not watched
	afterClose func()                          // nil: nothing to do
	ownLimits  atomic.Pointer[ownLimits]       // limits of single keys; nil: not needed

	mu    sync.Mutex // guards rules
	rules map[string]*Rule
}

// New returns a limiter on a client of one node, of Sentinel or of a Cluster. The client stays the
// caller's, who closes it after the limiter. Add hooks, for example for tracing, before calling New;
// hooks that are added later may not run. The reason is that the limiter uses a copy of a client of one
// node, with the same connections, that keeps the deadlines of contexts. To a Cluster's client New adds a
// hook of its own, which sends the limiter's commands straight to their masters.
//
// From then on, all connections that the client dials are those of [Dialer], including connections for
// other users of the client. A DialHook of the client gets them, too. But with TLS, or if the client's
// own Dialer returns another type than *net.TCPConn or *net.UnixConn, the connections stay as they are.
// [Open] says which settings a client should have.
//
// New waits at most a second for Redis, and at most two seconds for a Cluster. If Redis, or a master,
// cannot be reached, New starts nevertheless, in outage mode, and logs this; a service must not depend on
// Redis to start. Errors are only those that waiting does not solve: [limit.ErrAuth], [limit.ErrTLS],
// [limit.ErrNotRedis] and [limit.ErrInvalidOption]. The last of these is also returned for an address without a valid
// port, for a database (DB) that Redis does not have, for a ClientName that Redis refuses, for a
// MaintNotificationsConfig with ModeEnabled if Redis has no such notifications, for a negative DialTimeout, and for a
// Cluster client of a server that is not part of a Cluster.
func New(client redis.UniversalClient, options ...Option) (*Limiter, error) {
	c, err := configure(options)
	if err != nil {
		return nil, err
	}
	return start(client, c)
}

// start returns a limiter that has contacted Redis, or starts without it.
func start(client redis.UniversalClient, c config) (*Limiter, error) {
	if v := reflect.ValueOf(client); client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, option.Invalid("the Redis client is nil")
	}
	if _, ring := client.(*redis.Ring); ring {
		return nil, option.Invalid("a redis.Ring cannot hold limits: when one of its servers fails, keys move to others, which do not have their counts; use one node, Sentinel or Cluster")
	}
	o, _ := optionsOf(client)
	if err := checkDialTimeout(o.DialTimeout); err != nil {
		return nil, err
	}
	l, err := newLimiter(client, c)
	if err != nil {
		return nil, err
	}
	if err := l.shards.Join(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.shards.Run()
	return l, nil
}

func newLimiter(client redis.UniversalClient, c config) (*Limiter, error) {
	inline := keepsDeadlines(client)
	if node, ok := client.(*redis.Client); ok {
		client = remote.Adapt(node)
	}
	l := &Limiter{
		config:      c,
		client:      client,
		hasher:      local.NewHasher(),
		ledger:      ledger.New[*outage.Rule](c.ledgerKeys),
		metrics:     newCounters(),
		log:         newQuietLog(c.logger),
		start:       time.Now().Add(-beforeStart),
		ended:       make(chan struct{}),
		comparisons: make(chan comparison, shadowQueue),
		script:      remote.NewScript(client),
		lines:       newLines(),
		rules:       make(map[string]*Rule),
	}
	l.script.HoldConnections()
	l.script.OnForeignLibrary(func(err error) {
		l.log.Warn("library", "a function library in Redis has this version's name but different code; the script runs by EVALSHA instead", "error", err)
	})
	l.holds.lastID.Store(rand.Uint64() / 2)
	l.holds.pending = make(map[*outage.Shard]int)
	l.initSlots()
	l.ctx, l.stop = context.WithCancel(context.Background())
	var err error
	if l.keys, err = remote.NewKeyspace(c.prefix); err != nil {
		return nil, err
	}
	if c.hashTags > 0 {
		l.keys = l.keys.WithHashTags(c.hashTags)
	}
	within := c.deadline - c.deadline/returnPart
	l.batching = remote.Options{Deadline: within, MaxBatch: maxBatch, MaxWork: maxWork, InFlight: inFlight, Queue: c.queue, Inline: inline}
	if c.virtualClock != nil {
		l.batching.VirtualClock = func() int64 { return max(1, c.virtualClock().UnixMicro()) } // 0 is Redis's own clock
	}
	if c.fleetFile != "" {
		l.fleetFile = &fleetFile{path: c.fleetFile, log: l.log}
	}
	l.shards = l.newShards()
	l.shard = l.shards.Only()
	l.leases = l.newLeases()
	l.denials, err = local.NewDenials(c.denials, denialLife, c.virtualClock != nil)
	return l, err
}

// Rule returns the rule of the given name. A name has 1 to 64 letters, digits, "_", "-", "." or "/". It
// is part of the Redis keys, so all instances must agree on it. A second call with the same name and
// settings returns the same rule.
//
// Errors wrap [limit.ErrInvalidRule], as a [*ConflictError] if a rule of that name has other
// settings; [limit.ErrInvalidLimit], [limit.ErrInvalidAlgorithm], [limit.ErrInvalidOption] or
// [limit.ErrClosed].
func (l *Limiter) Rule(name string, lim limit.Limit, options ...RuleOption) (*Rule, error) {
	r, err := l.PrepareRule(name, lim, options...)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.rules[name]; known != nil {
		if !known.equal(r) {
			return nil, fmt.Errorf("%w (use ChangeRule to change the rule, WithLimit to give some keys another limit, or rulesfile.Rules.Rule to get a rule of a rules file)", known.conflict(r, ""))
		}
		r = known
	}
	r.held = true
	l.rules[name] = r
	return r, nil
}

// MustRule is [Limiter.Rule] for rules that are constants of a program. It panics where Rule returns an
// error, so the first run of the program shows the mistake.
func (l *Limiter) MustRule(name string, lim limit.Limit, options ...RuleOption) *Rule {
	r, err := l.Rule(name, lim, options...)
	if err != nil {
		panic(err)
	}
	return r
}

// ChangeRule puts another limit and other options in force under a rule's name at run time, or makes the
// rule. It returns the new rule. Units that were charged continue to count, as far as the old algorithm
// remembers them: see "Changing a rule" in docs/algorithms.md. Rules are immutable: the old rule keeps
// the old limit wherever the program still uses it, so keep a rule that may change in an atomic.Pointer.
// Refunds and settlements of units that the old rule has charged are made under the new one. Calls of
// [Rule.Wait] and [Rule.AcquireWait] that wait already continue under the old limit. They do not delay
// callers that use the new rule.
//
// Instances of a fleet that change at different times stay correct: each applies its own limit to the
// common counts. Errors are those of [Limiter.Rule] and [Limiter.PutInForce].
func (l *Limiter) ChangeRule(name string, lim limit.Limit, options ...RuleOption) (*Rule, error) {
	r, err := l.PrepareRule(name, lim, options...)
	if err != nil {
		return nil, err
	}
	if err := l.PutInForce(r); err != nil {
		return nil, err
	}
	return r, nil
}

// FleetSize returns the number of instances that share the limits, as last reported by Redis. Until Redis
// has reported it, FleetSize returns the assumed number (options [FleetSize], [FleetFile]).
func (l *Limiter) FleetSize() int { return l.shards.FleetSize() }

// State returns the limiter's state, which says who decides at the moment. On a Cluster it is the worst
// state of any master. It is [Outage] if one master counts as lost: the outage policies then decide that
// master's keys, while Redis continues to decide all others. State is cheap.
func (l *Limiter) State() State { return l.shards.State() }

// Degraded reports whether Redis, or a master of a Cluster, counts as lost at the moment, so that
// decisions are made by the rules' outage policies.
func (l *Limiter) Degraded() bool { return l.State() == Outage }

// ChargeRest waits until Redis has been charged for everything that was granted without it, and until the
// settlements of holds that wait for Redis have been made. If ctx ends first, it returns ctx's error. It
// also waits while Redis is lost, so use a ctx that ends. Call it before [Limiter.Close] if the process
// has time to wait: Close spends less than a second on the same work, and none while Redis is lost. On a
// closed limiter ChargeRest does nothing. If the limiter is closed while ChargeRest waits, it returns
// [limit.ErrClosed].
func (l *Limiter) ChargeRest(ctx context.Context) error {
	switch {
	case l.closed.Load():
		return nil
	case ctx == nil:
		return limit.ErrNilContext
	}
	if err := l.shards.Await(ctx, l.holds.areWaiting); err != nil { // settlements may themselves have to be charged
		return err
	}
	return l.shards.ChargeRest(ctx, true)
}

// closeWithin is how much longer than the deadline Close takes at most. After the deadline and
// chargeWithin, Close no longer gives leases back, settles holds, or waits until Redis is charged for
// units that were granted without it. The time that is left is for the other steps. Then Close waits for flushWithin at
// most until the logger has written its lines.
const (
	closeWithin  = 900 * time.Millisecond
	chargeWithin = closeWithin * 2 / 3
	flushWithin  = 100 * time.Millisecond
)

// errStillInClient is the error of Close if calls are still inside the Redis client, or the function of OnStateChange
// runs, at the end of closeWithin.
var errStillInClient = errors.New("tierlimit: the limiter is closed, but the Redis client has not returned from all calls yet: Redis does not answer, and the client waits longer than the deadline (ContextTimeoutEnabled is not set, a time-out is -2, a hook or OnConnect blocks, or it looks for the nodes of a Cluster); or the function of OnStateChange has not returned")

// Close ends the limiter. Decisions that wait for Redis, and all later ones, get [limit.ErrClosed]. Only calls of
// [Limiter.AllowAll] and the like that are charging one hash slot of a Cluster after another are decided first, or give
// back what they were charged. Leased units and slots are given back, and so are units that Redis grants to calls of
// [Rule.Wait] that have ended. Redis is charged for what was granted without it, and the instance leaves the fleet.
// While Redis counts as lost, Close does none of this ([Limiter.ChargeRest] waits for Redis). Close waits for trips in
// flight and leaves no goroutine behind. It takes at most a second longer than the deadline. A further call only waits
// until the first has ended.
//
// An error needs no action, but may be worth a line in the log. It says that Redis did not answer in time
// when the instance left the fleet, so the other instances count this one for up to five seconds more; or
// that goroutines are still inside the client or the function of [OnStateChange]. The client may be the reason if
// Redis hangs and it does not keep the deadlines of contexts. Such clients are those of an unknown type, those with
// time-outs of -2, those with hooks or an OnConnect that block, and Cluster clients that follow a redirection or look
// for the nodes of their Cluster.
//
// While a server is lost, go-redis has a goroutine of its own that tries to connect once a second. If
// [Open] made the client, that goroutine ends within a second and the client's DialTimeout after Close.
func (l *Limiter) Close() error {
	if l.closed.Swap(true) {
		<-l.ended
		return nil
	}
	defer close(l.ended)
	tripsEnded := make(chan error, 1)
	go func() { tripsEnded <- l.endTrips() }()
	var err error
	select {
	case err = <-tripsEnded:
	case <-time.After(l.config.deadline + closeWithin):
		l.stop()
		err = errStillInClient
	}
	l.script.ReturnIdleConnections()
	l.denials.Close()
	if l.config.ownsClient {
		err = errors.Join(err, l.client.Close())
	}
	if l.afterClose != nil {
		l.afterClose()
	}
	redisLines.leave(l.config.redisLog)
	flushed := time.Now().Add(flushWithin)
	l.log.flush(time.Until(flushed))
	l.config.redisLog.flush(time.Until(flushed))
	return err
}

// endTrips ends all calls to Redis, and leaves the fleet.
func (l *Limiter) endTrips() error {
	began := time.Now()
	soon, cancel := context.WithTimeout(context.Background(), l.config.deadline+chargeWithin)
	defer cancel()
	l.lines.close()
	l.closeSlots() // first, because it takes time of its own
	l.leases.Close(soon)
	l.closeHolds(soon)
	awaitUntil(&l.lines.asks, l.config.deadline+chargeWithin-time.Since(began))
	_ = l.shards.ChargeRest(soon, false)
	if units := l.shards.Uncharged(); units > 0 {
		l.log.Warn("uncharged", "units that were granted without Redis could not be charged there before the limiter was closed; Redis may grant them again", "units", units)
	}
	l.stop()
	l.shards.Close()
	l.background.Wait()
	l.script.Wait()
	return l.shards.Leave()
}

// now returns this process's time in nanoseconds, on a clock that only goes forward.
func (l *Limiter) now() int64 {
	if l.config.virtualClock != nil {
		return l.config.virtualClock().UnixNano()
	}
	return int64(time.Since(l.start))
}
