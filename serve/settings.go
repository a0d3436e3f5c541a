package serve

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tierlimit/tierlimit/remote"
	"github.com/tierlimit/tierlimit/serve/internal/statsd"
)

// ErrInvalidSetting is wrapped by every error about a setting.
var ErrInvalidSetting = errors.New("tierlimit: invalid setting")

// Settings configure a service at its start. [FromEnvironment] reads them from environment variables, which
// docs/serve.md lists in a table.
type Settings struct {
	HTTP, Debug, GRPC string // addresses, host:port
	GRPCSocket        string // path of a Unix socket to listen at instead of the address; "": none
	Metrics           string // address, "": none
	MetricsPath       string
	metricsWanted     bool // USE_PROMETHEUS is explicitly true
	statsDisabled     bool
	// Statsd is where statistics are sent. Without a network, they are not sent.
	Statsd       statsd.Settings
	StatsdEvery  time.Duration
	statsdWanted bool // a variable explicitly configures statsd

	MaxConnectionAge, MaxConnectionAgeGrace time.Duration
	TLS                                     TLSFiles
	UseTLS                                  bool

	LogLevel slog.Level
	LogJSON  bool

	UseXDS         bool // the configuration comes from a control plane and not from files
	XDS            XDSSettings
	ConfigDir      string // directory of the configuration files
	ConfigBeside   bool   // also read its siblings whose names begin with its name and a dot
	IgnoreDotFiles bool
	MergeDomains   bool
	Overlay        string // file with settings that the configuration has no fields for; "": none
	// LookEvery is how often to check the files and the overlay for changes, and the shortest time between two
	// refusals of what a control plane sends.
	LookEvery time.Duration
	// HealthyWithConfig makes the service healthy only once it has a configuration.
	HealthyWithConfig bool
	// HealthyAtOnce makes the service healthy from the start. Otherwise it becomes healthy when it has received a first
	// configuration, even one that it refuses.
	HealthyAtOnce bool
	// HealthyWithRedis makes the service healthy only while it can reach Redis.
	HealthyWithRedis bool

	Redis          RedisSettings
	PerSecond      bool // PerSecondRedis holds the limits per second
	PerSecondRedis RedisSettings
	Prefix         string
	Deadline       time.Duration // of a decision
	FleetSize      int           // instances to assume until Redis has reported their number; 0: the library's default
	FleetFile      string        // file that keeps the fleet's size for starts without Redis; "": none

	NearLimit                                 float32
	ShadowMode, QuotaMode                     bool
	Headers                                   bool
	LimitHeader, RemainingHeader, ResetHeader string
	DynamicMetadata                           bool
	RememberDenials                           bool
	ChargeSeparately                          bool
}

// TLSFiles are the paths of the server's certificate files.
type TLSFiles struct {
	Certificate, Key string
	ClientCA         string // "": clients need no certificate
	ClientName       string // name that a client's certificate must be issued for; "": any
}

// RedisSettings are the addresses of Redis and how to connect to it. Network is "" if it is not set.
type RedisSettings struct {
	Type, Network, URL string
	Auth, SentinelAuth string
	PoolSize           int
	TLS                bool
	Files              RedisTLSFiles
}

// RedisTLSFiles are the paths of the certificate files for connections to Redis.
type RedisTLSFiles struct {
	Certificate, Key, CA string
	SkipHostname         bool
}

// FromEnvironment reads settings from variables of the form NAME=VALUE, as os.Environ returns them. It returns a
// warning for each variable that envoyproxy/ratelimit knows and this service ignores, with the reason. Errors wrap
// [ErrInvalidSetting].
func FromEnvironment(environ []string) (s Settings, warnings []string, err error) {
	e := newEnvironment(environ)
	s = Settings{
		HTTP:                  e.address("HOST", "PORT", 8080),
		Debug:                 e.debugAddress(),
		GRPC:                  e.address("GRPC_HOST", "GRPC_PORT", 8081),
		GRPCSocket:            e.text("GRPC_UDS", ""),
		Metrics:               e.text("PROMETHEUS_ADDR", ":9090"),
		MetricsPath:           e.text("PROMETHEUS_PATH", "/metrics"),
		metricsWanted:         e.truth("USE_PROMETHEUS", false),
		statsDisabled:         e.truth("DISABLE_STATS", false),
		MaxConnectionAge:      e.age(),
		MaxConnectionAgeGrace: e.grace(),
		UseTLS:                e.truth("GRPC_SERVER_USE_TLS", false),
		TLS: TLSFiles{
			Certificate: e.text("GRPC_SERVER_TLS_CERT", ""), Key: e.text("GRPC_SERVER_TLS_KEY", ""),
			ClientCA: e.text("GRPC_CLIENT_TLS_CACERT", ""), ClientName: e.text("GRPC_CLIENT_TLS_SAN", ""),
		},
		LogJSON:           strings.EqualFold(e.text("LOG_FORMAT", "text"), "json"),
		UseXDS:            e.text("CONFIG_TYPE", "FILE") == "GRPC_XDS_SOTW",
		XDS:               e.xds(),
		ConfigDir:         e.configDir(),
		ConfigBeside:      e.configBeside(),
		IgnoreDotFiles:    e.truth("RUNTIME_IGNOREDOTFILES", false),
		MergeDomains:      e.truth("MERGE_DOMAIN_CONFIG", false),
		Overlay:           e.text("TIERLIMIT_OVERLAY", ""),
		LookEvery:         time.Second,
		HealthyWithConfig: e.truth("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", false),
		HealthyAtOnce:     e.truth("FORCE_START_WITHOUT_INITIAL_CONFIG", false),
		HealthyWithRedis:  e.truth("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", false),
		Redis:             e.redis("REDIS_"),
		PerSecond:         e.truth("REDIS_PERSECOND", false),
		Prefix:            e.prefix(),
		Deadline:          e.duration("TIERLIMIT_DEADLINE", defaultDeadline),
		FleetSize:         e.number("TIERLIMIT_FLEET_SIZE", 0, 1, maxInstances),
		FleetFile:         e.text("TIERLIMIT_FLEET_FILE", ""),
		NearLimit:         e.nearLimit(),
		ShadowMode:        e.truth("SHADOW_MODE", false),
		QuotaMode:         e.truth("QUOTA_MODE", false),
		Headers:           e.truth("LIMIT_RESPONSE_HEADERS_ENABLED", false),
		LimitHeader:       e.text("LIMIT_LIMIT_HEADER", "RateLimit-Limit"),
		RemainingHeader:   e.text("LIMIT_REMAINING_HEADER", "RateLimit-Remaining"),
		ResetHeader:       e.text("LIMIT_RESET_HEADER", "RateLimit-Reset"),
		DynamicMetadata:   e.truth("RESPONSE_DYNAMIC_METADATA", false),
		RememberDenials:   e.number("LOCAL_CACHE_SIZE_IN_BYTES", 0, math.MinInt, math.MaxInt) != 0, // as in envoyproxy/ratelimit
		ChargeSeparately:  e.truth("TIERLIMIT_CHARGE_SEPARATELY", false),
	}
	if s.PerSecond {
		s.PerSecondRedis = e.redis("REDIS_PERSECOND_")
	}
	s.LogLevel = e.level("LOG_LEVEL")
	e.statsd(&s)
	if !e.truth("USE_PROMETHEUS", true) || s.statsDisabled {
		s.Metrics = ""
	}
	e.oneOf("CONFIG_TYPE", "FILE", "GRPC_XDS_SOTW")
	e.oneOf("BACKEND_TYPE", "redis")
	s.MetricsPath = e.metricsPath(&s)
	e.check(&s)
	return s, append(e.meaningless(&s), e.warnings...), errors.Join(e.errs...)
}

// check checks settings that depend on each other, and those with bounds of the library.
func (e *environment) check(s *Settings) {
	if s.Deadline < shortestDeadline || s.Deadline > longestDeadline {
		e.fail("TIERLIMIT_DEADLINE is %v, must be between %v and %v", s.Deadline, shortestDeadline, longestDeadline)
	}
	if s.Headers {
		e.headerNames()
	}
	if s.UseTLS && (s.TLS.Certificate == "" || s.TLS.Key == "") {
		e.fail("GRPC_SERVER_USE_TLS is set: GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY must name files")
	}
	if s.PerSecond && (s.Redis.URL == "") != (s.PerSecondRedis.URL == "") {
		e.fail("REDIS_PERSECOND is set, but only one of REDIS_URL and REDIS_PERSECOND_URL: set both, or neither to count in this process")
	}
}

// statsd reads where statistics are sent. As in envoyproxy/ratelimit, the default is a statsd server on this machine.
// If Prometheus is asked for, statistics are not sent to statsd by default.
func (e *environment) statsd(s *Settings) {
	dog := e.truth("USE_DOG_STATSD", false)
	plain := e.truth("USE_STATSD", !dog && !s.metricsWanted)
	s.StatsdEvery = e.duration("STATS_FLUSH_INTERVAL", 10*time.Second)
	if s.StatsdEvery == 0 {
		e.fail("STATS_FLUSH_INTERVAL is 0s, must be a duration like 10s")
	}
	s.StatsdEvery = e.atLeast("STATS_FLUSH_INTERVAL", s.StatsdEvery, shortestFlush)
	port := e.number("STATSD_PORT", 8125, math.MinInt, math.MaxInt)
	s.Statsd = statsd.Settings{
		Network: strings.ToLower(e.text("STATSD_PROTOCOL", "tcp")),
		Address: net.JoinHostPort(e.text("STATSD_HOST", "localhost"), strconv.Itoa(port)),
		Tags:    e.pairs("EXTRA_TAGS", ":"),
		Dog:     dog,
	}
	s.statsdWanted = e.values["USE_STATSD"] != "" || e.values["STATSD_HOST"] != "" || dog
	switch {
	case s.statsDisabled || !plain && !dog || port < 1 || port > 65535: // as nothing is sent there in envoyproxy/ratelimit
		s.Statsd.Network = ""
	case plain && dog:
		e.fail("USE_STATSD and USE_DOG_STATSD are both set: choose one of them")
	case dog:
		s.Statsd.Network = "udp"
		s.Statsd.DogTags = e.datadogTags()
		s.Statsd.NameContainer = e.namesContainer()
	case !slices.Contains([]string{"tcp", "tcp4", "tcp6", "udp", "udp4", "udp6"}, s.Statsd.Network):
		s.Statsd.Network = "" // as nothing is sent with such a protocol in envoyproxy/ratelimit; meaningless warns of it
	}
}

// datadogTags returns the tags that Datadog's own client, which envoyproxy/ratelimit uses, takes from variables.
func (e *environment) datadogTags() (tags []string) {
	for _, of := range []struct{ variable, tag string }{
		{"DD_ENTITY_ID", "dd.internal.entity_id"}, {"DD_ENV", "env"}, {"DD_SERVICE", "service"}, {"DD_VERSION", "version"},
	} {
		if value := e.text(of.variable, ""); value != "" {
			tags = append(tags, of.tag+":"+value)
		}
	}
	return tags
}

// namesContainer reports whether Datadog's own client would say which container it runs in: DD_ENTITY_ID says it better,
// and any DD_ORIGIN_DETECTION_ENABLED that is not false leaves it on.
func (e *environment) namesContainer() bool {
	on, err := strconv.ParseBool(e.text("DD_ORIGIN_DETECTION_ENABLED", "true"))
	return e.text("DD_ENTITY_ID", "") == "" && (on || err != nil)
}

// shortestFlush is the shortest interval at which statistics may be sent.
const shortestFlush = 100 * time.Millisecond

// defaultDeadline leaves time to answer within the 20 ms that Envoy waits by default.
const defaultDeadline = 15 * time.Millisecond

// The bounds that the library sets for a limiter's deadline, see [tiered.Deadline].
const (
	shortestDeadline = time.Millisecond
	longestDeadline  = 10 * time.Second
)

// isHeader reports whether text can be a header's name: letters, digits and the characters in others.
func isHeader(text, others string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(others, r)
	})
}

// maxInstances is the largest fleet size that a limiter accepts, see [tiered.FleetSize].
const maxInstances = 1_000_000

// shortestAge is the shortest age of a connection. With less than 10 ns, gRPC ends the process at the first connection,
// because it divides by a tenth of it.
const shortestAge = time.Millisecond

// age reads the age at which connections take no more calls. 0 is unlimited.
func (e *environment) age() time.Duration {
	const name = "GRPC_MAX_CONNECTION_AGE"
	value := e.duration(name, 24*time.Hour)
	if value == 0 {
		return 0
	}
	return e.atLeast(name, value, shortestAge)
}

// grace reads how long calls may go on after their connection has reached its age. Like envoyproxy/ratelimit, it accepts a
// negative time. 0 is unlimited.
func (e *environment) grace() time.Duration {
	const name = "GRPC_MAX_CONNECTION_AGE_GRACE"
	value := e.signedDuration(name, time.Hour)
	if value < 0 {
		e.warn("%s is %v: calls are cut off when their connection reaches its age; 0 lets them end", name, value)
	}
	return value
}

// headerNames checks the names of headers. Like envoyproxy/ratelimit, the service sends them as they are set, and it
// is Envoy that may not accept them. Text that is not UTF-8 cannot be sent.
func (e *environment) headerNames() {
	for _, name := range []string{"LIMIT_LIMIT_HEADER", "LIMIT_REMAINING_HEADER", "LIMIT_RESET_HEADER"} {
		switch value := e.values[name]; {
		case value == "" || isHeader(value, "!#$%&'*+-.^_`|~"):
		case !utf8.ValidString(value):
			e.fail("%s is %q, must be UTF-8", name, value)
		default:
			e.warn("%s is %q, which is no name of a header: it is sent as it is, and clients may refuse the answer", name, value)
		}
	}
}

// metricsPath returns the path at which metrics are served. Without USE_PROMETHEUS, envoyproxy/ratelimit does not look at
// its variable, so a path that cannot be served is only replaced.
func (e *environment) metricsPath(s *Settings) string {
	const usual = "/metrics"
	if s.Metrics == "" || strings.HasPrefix(s.MetricsPath, "/") && !strings.ContainsAny(s.MetricsPath, "{} ") {
		return s.MetricsPath
	}
	if s.metricsWanted {
		e.fail("PROMETHEUS_PATH is %q, must be like %s", s.MetricsPath, usual)
	} else {
		e.warn("PROMETHEUS_PATH is %q, must be like %s: metrics are served at %s", s.MetricsPath, usual, usual)
	}
	return usual
}

// nearLimit reads the part of a limit above which hits count as near it. Like envoyproxy/ratelimit, it accepts any number.
func (e *environment) nearLimit() float32 {
	const name = "NEAR_LIMIT_RATIO"
	text := e.text(name, "0.8")
	value, err := strconv.ParseFloat(text, 32)
	if err != nil {
		e.fail("%s is %q, must be a number between 0 and 1", name, text)
	} else if !(value >= 0 && value <= 1) {
		e.warn("%s is %q, which is not between 0 and 1: no hits count as near their limit", name, text)
		value = 1
	}
	return float32(value)
}

// prefix reads what keys in Redis begin with. envoyproxy/ratelimit accepts any text. Text that keys cannot begin with here
// is replaced, and its hash keeps services with different prefixes apart.
func (e *environment) prefix() string {
	text := e.text("CACHE_KEY_PREFIX", "rl")
	if _, err := remote.NewKeyspace(text); err == nil {
		return text
	}
	kept := strings.Map(func(r rune) rune {
		if isHeader(string(r), "_-.:") {
			return r
		}
		return '_'
	}, text)
	prefix := fmt.Sprintf("%.23s_%.4x", kept, sha256.Sum256([]byte(text)))
	e.warn("CACHE_KEY_PREFIX is %q, must be 1 to 32 letters, digits, _, -, . or ':': keys begin with %q instead", text, prefix)
	return prefix
}

// debugAddress returns the address of the pages for operators. Any port will do, because the service also runs without
// them.
func (e *environment) debugAddress() string {
	return e.hostPort("DEBUG_HOST", e.number("DEBUG_PORT", 6070, math.MinInt, math.MaxInt))
}

func (e *environment) level(name string) slog.Level {
	switch text := e.text(name, "warn"); strings.ToLower(text) {
	case "trace", "debug":
		return slog.LevelDebug
	case "info":
		return slog.LevelInfo
	case "warn", "warning":
		return slog.LevelWarn
	case "error", "fatal", "panic":
		return slog.LevelError
	default:
		e.fail("%s is %q, must be debug, info, warn or error", name, text)
		return slog.LevelWarn
	}
}

// poolSize reads how many connections to Redis there may be. Like envoyproxy/ratelimit, it accepts more than there can be.
func (e *environment) poolSize(name string) int {
	const most = 100_000
	value := e.number(name, 10, 0, math.MaxInt)
	if value > most {
		e.warn("%s is %d: %d is used, the most there are", name, value, most)
	}
	return min(value, most)
}

func (e *environment) redis(prefix string) RedisSettings {
	s := RedisSettings{
		Type:         strings.ToLower(e.text(prefix+"TYPE", "single")),
		URL:          e.text(prefix+"URL", ""),
		Auth:         e.text(prefix+"AUTH", ""),
		SentinelAuth: e.text(prefix+"SENTINEL_AUTH", ""),
		PoolSize:     e.poolSize(prefix + "POOL_SIZE"),
		TLS:          e.truth(prefix+"TLS", false),
		Files: RedisTLSFiles{
			Certificate: e.text("REDIS_TLS_CLIENT_CERT", ""), Key: e.text("REDIS_TLS_CLIENT_KEY", ""), CA: e.text("REDIS_TLS_CACERT", ""),
			SkipHostname: e.truth("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", false),
		},
		Network: strings.ToLower(e.text(prefix+"SOCKET_TYPE", "")),
	}
	if !slices.Contains([]string{"single", "sentinel", "cluster"}, s.Type) {
		e.fail("%sTYPE is %q, must be single, sentinel or cluster", prefix, s.Type)
	}
	if s.Type == "single" && !slices.Contains([]string{"", "unix", "tcp", "tcp4", "tcp6"}, s.Network) {
		e.fail("%sSOCKET_TYPE is %q, must be tcp, tcp4, tcp6 or unix", prefix, s.Network)
	}
	return s
}
