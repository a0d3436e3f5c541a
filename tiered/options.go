package tiered

import (
	"log/slog"
	"time"

	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
	"github.com/tierlimit/tierlimit/plan"
	"github.com/tierlimit/tierlimit/remote"
)

// Option configures a limiter. If its arguments are invalid, [New] returns an error that wraps
// [limit.ErrInvalidOption].
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
	redisLog     *quietLog // where go-redis logs; nil: go-redis's own logger is kept
	hashTags     int       // 0: each user key is its own hash tag

	onStateChange func(State)
}

// configure returns the defaults with the options applied.
func configure(options []Option) (config, error) {
	c := config{
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
	err := option.Apply(&c, options)
	return c, err
}

// Prefix sets the prefix of all Redis keys of the limiter: 1 to 32 letters, digits, "_", "-", "." or ":".
// The default is "tl". Limiters that use the same Redis and prefix share their limits and form one fleet. So give each
// service that uses the Redis a prefix of its own, unless they should share limits. Otherwise rules of equal names
// charge the same counts, and in an outage an instance's share is that of a fleet of all services' instances.
func Prefix(prefix string) Option {
	return func(c *config) error {
		c.prefix = prefix
		_, err := remote.NewKeyspace(prefix)
		return err
	}
}

// HashTags distributes the limiter's keys over the given number of hash tags, 1 to 16,384, and so also
// over as many slots of a Redis Cluster. Without this option, each user key is its own hash tag.
// Since a call of the script takes keys of one slot only, sharing tags makes calls larger and
// cheaper: with 16 tags per master and 128 keys in a batch, a call carries about eight keys, each in
// about half the time; see docs/performance.md. The tags' slots are evenly spaced. With few tags, the
// work is balanced only if the masters have equal shares of the slots, and moves in large parts when
// slots move.
//
// The tags are part of the Redis keys, so all instances must use the same number, and changing it
// starts all counts at zero. On a single node, this option changes only the names of the keys.
func HashTags(tags int) Option {
	return option.Set(func(c *config) { c.hashTags = tags },
		tags >= 1 && tags <= remote.SlotCount, "%d hash tags, must be between 1 and %d", tags, remote.SlotCount)
}

// Deadline sets the longest time that a decision may take, 1 ms to 10 s; the default is 50 ms. If Redis has
// not answered a sixteenth before then, the outage policy decides: the rest is for the caller's goroutine, which
// may have to wait for a processor. A process that leaves its goroutines waiting for longer than that is late
// by as much. A context with an earlier deadline ends a call earlier. If the context leaves less than three
// quarters of d, the call then ends with the context's error. To have the outage policy decide earlier, see
// [DecideBy].
func Deadline(d time.Duration) Option {
	return option.Set(func(c *config) { c.deadline = d },
		d >= time.Millisecond && d <= 10*time.Second, "deadline %v, must be between 1ms and 10s", d)
}

// Thresholds sets the sizes of limits at which the automatic choice of algorithm changes. It chooses a
// sliding log for limits of up to logUpTo units, a strict sliding counter for up to counterUpTo, and GCRA
// above. GCRA is then given a burst of a tenth of the limit, but at least counterUpTo, so that no limit
// grants less at once than a smaller one. A limit with a burst ([limit.Limit.WithBurst]) uses GCRA
// whatever its size. The defaults are 2,000 and 100,000.
func Thresholds(logUpTo, counterUpTo int64) Option {
	return option.Set(func(c *config) { c.logUpTo, c.counterUpTo = logUpTo, counterUpTo },
		logUpTo >= 0 && logUpTo <= lua.MaxLogUnits && counterUpTo >= logUpTo,
		"thresholds %d and %d: the first must be between 0 and %d, and the second at least as large", logUpTo, counterUpTo, lua.MaxLogUnits)
}

// FleetSize sets how many instances to assume until Redis has reported the real number, 1 to 1,000,000;
// the default is 10. It matters only if an instance starts while Redis cannot be reached, or less than
// three seconds before Redis is lost, when Redis has not yet counted the whole fleet. Such an instance
// may grant the limit divided by this number. Set it to the largest size of the fleet (an autoscaler's
// maximum), and to 1 for a service of a single process. See also [FleetFile] and [ColdStart].
func FleetSize(instances int) Option {
	return option.Set(func(c *config) { c.fleetSize = instances },
		instances >= 1 && instances <= maxInstances, "fleet size %d, must be between 1 and 1,000,000", instances)
}

// FleetFile names a file that records the largest size of the fleet in the last seven days. Instances
// that start while Redis cannot be reached assume that size, or the [FleetSize] option if that is larger.
// Every instance writes the file, at most once an hour unless the fleet has grown. The file may be on a
// volume that instances share, or on a disk that outlives the process. Limiters of different fleets need
// different files. The folder must exist. If the file has content that is not a fleet's size, the limiter
// does not overwrite it. If the file cannot be read or written, the limiter logs that, and works without it.
func FleetFile(path string) Option {
	return option.Set(func(c *config) { c.fleetFile = path }, path != "", "the path of the FleetFile is empty")
}

// ColdStart sets the time after which an instance that starts while Redis cannot be reached grants its
// whole share of a limit. The default is a minute, or the limit's window if that is shorter. Until then,
// the share grows evenly from a single unit. The reason is that the instance may have replaced another
// one that granted its share just before: the longer the time, the less the two grant together. With 0,
// the whole share is granted at once. With [limit.MaxWindow], the share grows over the limit's whole
// window.
func ColdStart(d time.Duration) Option {
	return option.Set(func(c *config) { c.coldStart = d },
		d >= 0 && d <= limit.MaxWindow, "ColdStart of %v, must be between 0 and %v", d, limit.MaxWindow)
}

// RememberDenials sets how many denied keys the process remembers; the default is 100,000. Each takes
// up to 400 bytes, of which 55 to 75 are allocated at once. With 0, denials are not remembered, and
// every request goes to Redis.
func RememberDenials(keys int) Option {
	return option.Set(func(c *config) { c.denials = keys },
		keys >= 0 && keys <= 100_000_000, "RememberDenials of %d keys, must be between 0 and 100,000,000", keys)
}

// LedgerKeys sets the number of keys for which this instance records its own grants; the default is
// 100,000. It should be at least the number of keys that are active in one window, and is rounded up
// to a power of two. Each takes 72 bytes, all allocated at once.
func LedgerKeys(keys int) Option {
	return option.Set(func(c *config) { c.ledgerKeys = keys },
		keys >= 1 && keys <= 100_000_000, "LedgerKeys of %d, must be between 1 and 100,000,000", keys)
}

// QueueLength sets how many decisions may wait at the same time for Redis, or for each master of a
// Cluster; the default is 100,000. Further decisions are made at once by the rules' outage policies. If
// more calls wait than Redis can decide in time at its present rate, up to 100 of the excess calls per
// millisecond are also decided at once, and the others by the policies at their deadline. This is neither
// an outage nor an error.
func QueueLength(decisions int) Option {
	return option.Set(func(c *config) { c.queue = decisions },
		decisions >= 1 && decisions <= 10_000_000, "QueueLength of %d, must be between 1 and 10,000,000", decisions)
}

// Logger sets the logger for changes of state and for failures; the default is slog.Default(). Events of
// one kind are logged at most every 10 s. The logger is called on a goroutine of its own, with a context
// that has no values, so one that blocks delays no decision. While it blocks, up to 64 lines wait, and
// further ones are left out. [Limiter.Close] waits for at most 100 ms until the lines have been written.
func Logger(logger *slog.Logger) Option {
	return option.Set(func(c *config) { c.logger = logger }, logger != nil, "the Logger is nil")
}

// OnStateChange sets a function that is called with the new state at each change of [Limiter.State].
// Calls are made one after another, on a goroutine of the limiter. The function must not call Close. The
// state of a Cluster is the worst of its masters' states. So the function is called when the first master
// is lost and when the last one is back, but not for other masters in between; the log has those, too.
// States that begin and end while the function runs are not reported, but the latest state always is.
func OnStateChange(f func(State)) Option {
	return option.Set(func(c *config) { c.onStateChange = f }, f != nil, "the function for OnStateChange is nil")
}

// VirtualClock replaces both Redis's clock and this process's clock, for tests and simulations; do not
// use it in production. The function must be safe for concurrent use. All limiters that share a Redis
// must use the same clock. It must show times from the year 1970 to the year 2100, because values in
// Redis cannot represent others. Deadlines and heartbeats stay in real time, and keys in Redis live for
// at least an hour.
func VirtualClock(now func() time.Time) Option {
	return func(c *config) error {
		if now == nil {
			return option.Invalid("the VirtualClock is nil")
		}
		if year := now().UTC().Year(); year < 1970 || year > 2100 {
			return option.Invalid("the VirtualClock shows the year %d, must be between 1970 and 2100", year)
		}
		c.virtualClock = now
		return nil
	}
}

// RuleOption configures a rule.
type RuleOption func(*ruleConfig) error

type ruleConfig struct {
	algorithm    limit.Algorithm
	need         plan.Need // zero: choose by the size of the limit
	policy       OutagePolicy
	shadow       float64 // fraction of the keys that is sampled; 0: none
	leased       int     // percent of the limit
	leasedWithin bool    // leases stay within the limit
	dryRun       bool
	countDenied  bool
	denialLife   time.Duration
	unsettled    UnsettledPolicy
	unsettledSet bool          // the Unsettled option was given, even if with its default value
	slotTTL      time.Duration // 0: the default
	holdLife     time.Duration // 0: callers must pass it
}

// Use sets the rule's algorithm. Without it, the algorithm is chosen by the rule's [Need] or, if that
// is not set either, by the size of its limit; see [Thresholds].
func Use(a limit.Algorithm) RuleOption {
	return func(c *ruleConfig) error {
		c.algorithm = a
		return a.Validate()
	}
}
