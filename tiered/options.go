package tiered

import (
	"log/slog"
	"time"

	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/plan"
	"github.com/tierlimit/tierlimit/remote"
)

// Option sets something for a whole limiter. [New] checks its arguments, and returns an error that
// wraps [limit.ErrInvalidOption].
type Option func(*config) error

type config struct {
	prefix       string
	deadline     time.Duration
	logUpTo      int64
	counterUpTo  int64
	fleetSize    int // 0: not set
	fleetFile    string
	coldStart    time.Duration
	denials      int
	ledgerKeys   int
	queue        int
	logger       *slog.Logger
	virtualClock func() time.Time
	ownsClient   bool
	keepRedisLog bool
	redisLog     *quietLog // for go-redis's log lines; nil: left to go-redis
	hashTags     int       // 0: each user key is its own

	onStateChange func(State)
}

func defaults() config {
	return config{
		prefix:      "tl",
		deadline:    50 * time.Millisecond,
		logUpTo:     DefaultLogUpTo,
		counterUpTo: DefaultCounterUpTo,
		coldStart:   time.Minute,
		denials:     100_000,
		ledgerKeys:  100_000,
		queue:       100_000,
		logger:      slog.Default(),
	}
}

// configure returns the defaults with the options applied.
func configure(options []Option) (config, error) {
	c := defaults()
	for _, option := range options {
		if err := option(&c); err != nil {
			return c, err
		}
	}
	return c, nil
}

// Prefix sets the prefix of all Redis keys of the limiter; the default is "tl". Limiters with the
// same prefix on the same Redis share limits and fleet.
func Prefix(prefix string) Option {
	return func(c *config) error {
		c.prefix = prefix
		_, err := remote.NewKeyspace(prefix)
		return err
	}
}

// HashTags makes the limiter's keys share the given number of hash tags, 1 to 16,384, and with them
// slots of a Redis Cluster; without it each user key is its own hash tag. A call of the script
// takes the keys of one slot. So with 16 tags for each master, calls carry about eight keys if a
// master is asked for 128 at a time, in about half of the time for each; see docs/performance.md.
// The tags' slots are at equal distances. If there are few tags, only masters with equal shares of
// the slots have equal shares of the work, and when slots move, the work moves in large parts.
//
// All instances must agree on it: it is part of the Redis keys. Changing it starts all counts at
// zero. On a single node it changes only the keys' names.
func HashTags(tags int) Option {
	return func(c *config) error {
		if tags < 1 || tags > remote.SlotCount {
			return option.Invalid("%d hash tags, must be between 1 and %d", tags, remote.SlotCount)
		}
		c.hashTags = tags
		return nil
	}
}

// Deadline sets the longest a decision may take, 1 ms to 10 s; the default is
// 50 ms. When it passes without an answer from Redis the outage policy decides. A
// context with an earlier deadline shortens it for one call, and ends it with an error; for a time
// after which the outage policy decides see [DecideBy].
func Deadline(d time.Duration) Option {
	return func(c *config) error {
		if d < time.Millisecond || d > 10*time.Second {
			return option.Invalid("deadline %v, must be between 1ms and 10s", d)
		}
		c.deadline = d
		return nil
	}
}

// Thresholds sets the automatic choice of algorithm: a sliding log for limits of up to logUpTo
// units, a strict sliding counter up to counterUpTo, GCRA above. The burst of that GCRA is a tenth
// of the limit, but at least counterUpTo, so that no limit grants less at once than a smaller one.
// A limit with a burst ([limit.Limit.WithBurst]) is counted by GCRA whatever its size. The defaults
// are 2,000 and 100,000.
func Thresholds(logUpTo, counterUpTo int64) Option {
	return func(c *config) error {
		if logUpTo < 0 || logUpTo > remote.MaxLogQuota || counterUpTo < logUpTo {
			return option.Invalid("thresholds %d and %d, must be between 0 and %d, and not descending", logUpTo, counterUpTo, remote.MaxLogQuota)
		}
		c.logUpTo, c.counterUpTo = logUpTo, counterUpTo
		return nil
	}
}

// FleetSize sets how many instances to assume until Redis has reported the real number, 1 to
// 1,000,000; the default is 10. It matters to an instance that starts while Redis cannot be
// reached: it may grant the limit divided by this number. Each instance that is added then grants
// as much, so set it to the largest size of the fleet (an autoscaler's maximum), and to 1 for a
// service that is one process. See also [FleetFile] and [ColdStart].
func FleetSize(instances int) Option {
	return func(c *config) error {
		if instances < 1 || instances > mostInstances {
			return option.Invalid("fleet size %d, must be between 1 and 1,000,000", instances)
		}
		c.fleetSize = instances
		return nil
	}
}

// FleetFile names a file that keeps the largest size of the fleet in the last seven days, for
// instances that start while Redis cannot be reached: they assume that size, or that of [FleetSize]
// if it is larger. Every instance writes it, at most once an hour unless the fleet has grown. It
// may be on a volume that instances share, or on a disk that outlives the process; limiters of
// different fleets need different files. The folder must exist. If the file cannot be read or
// written, this is logged, and the limiter works without it.
func FleetFile(path string) Option {
	return func(c *config) error {
		if path == "" {
			return option.Invalid("the name of the fleet's file is empty")
		}
		c.fleetFile = path
		return nil
	}
}

// ColdStart sets how long an instance that starts while Redis cannot be reached takes until it
// grants its whole share of a limit; the default is a minute, or the limit's window if that is
// shorter. The share grows evenly from a single unit: the instance may have replaced another that
// granted its share just before, and the longer the time, the less the two grant together. With 0
// the share is granted at once, with [limit.MaxWindow] over the limit's whole window.
func ColdStart(d time.Duration) Option {
	return func(c *config) error {
		if d < 0 || d > limit.MaxWindow {
			return option.Invalid("cold start of %v, must be between 0 and %v", d, limit.MaxWindow)
		}
		c.coldStart = d
		return nil
	}
}

// RememberDenials sets how many denied keys are remembered in process, at about 150 bytes each, 8
// to 16 of them allocated at once; the default is 100,000. 0 turns this off: every request then
// goes to Redis.
func RememberDenials(keys int) Option {
	return func(c *config) error {
		if keys < 0 || keys > 100_000_000 {
			return option.Invalid("memory for %d denials, must be between 0 and 100,000,000", keys)
		}
		c.denials = keys
		return nil
	}
}

// LedgerKeys sets for how many keys this instance's own grants are recorded, at 72 bytes each,
// allocated at once; the default is 100,000. It should be at least the number of keys that are
// active in one window. It is rounded up to a power of two.
func LedgerKeys(keys int) Option {
	return func(c *config) error {
		if keys < 1 || keys > 100_000_000 {
			return option.Invalid("ledger for %d keys, must be between 1 and 100,000,000", keys)
		}
		c.ledgerKeys = keys
		return nil
	}
}

// QueueLength sets how many decisions may wait for Redis, or for each master of a Cluster, at once;
// the default is 100,000. Further ones are decided at once by the rules' outage policies. So are up
// to 100 calls a millisecond that Redis could not decide in time at its present rate; other such
// calls are decided by the policies at their deadline. This is neither an outage nor an error.
func QueueLength(decisions int) Option {
	return func(c *config) error {
		if decisions < 1 || decisions > 10_000_000 {
			return option.Invalid("queue length %d, must be between 1 and 10,000,000", decisions)
		}
		c.queue = decisions
		return nil
	}
}

// Logger sets where changes of state are logged; the default is slog.Default().
func Logger(logger *slog.Logger) Option {
	return func(c *config) error {
		if logger == nil {
			return option.Invalid("logger is nil")
		}
		c.logger = logger
		return nil
	}
}

// OnStateChange sets a function that is called with each change of [Limiter.State], one after
// another, on a goroutine of the limiter. It must not call Close. On a Cluster, whose state is the
// worst of its masters', it is called when the first master is lost and when the last is back, and
// not for others in between; the log has all changes. If 256 changes wait for the function, further
// ones are dropped.
func OnStateChange(f func(State)) Option {
	return func(c *config) error {
		if f == nil {
			return option.Invalid("state change function is nil")
		}
		c.onStateChange = f
		return nil
	}
}

// VirtualClock replaces time, for tests and simulations: Redis's clock as well as
// this process's. It must be safe for concurrent use. All limiters that share a Redis must be given the same clock,
// and production code none. Deadlines and heartbeats stay in real time, and keys
// in Redis live for an hour at least.
func VirtualClock(now func() time.Time) Option {
	return func(c *config) error {
		if now == nil {
			return option.Invalid("virtual clock is nil")
		}
		c.virtualClock = now
		return nil
	}
}

// RuleOption sets something for one rule.
type RuleOption func(*ruleConfig) error

type ruleConfig struct {
	algorithm    limit.Algorithm
	need         plan.Need // zero: choose by the size of the limit
	policy       OutagePolicy
	shadow       float64 // sampled part of the keys; 0: none
	leased       int     // percent of the limit
	leasedWithin bool    // leases stay within the limit
	dryRun       bool
	countDenied  bool
	denialLife   time.Duration
	unsettled    UnsettledPolicy
	unsettledSet bool          // by an option, be it to the default
	slotTTL      time.Duration // 0: the default
	holdLife     time.Duration // 0: callers must pass it
}

// Use sets the rule's algorithm; without it, the algorithm is chosen by the rule's [Need], or by
// the size of its limit, see [Thresholds].
func Use(a limit.Algorithm) RuleOption {
	return func(c *ruleConfig) error {
		c.algorithm = a
		return a.Validate()
	}
}
