package serve

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// meaningless maps variables of envoyproxy/ratelimit that have no effect here to the reason.
var meaningless = map[string]string{
	"EXPIRATION_JITTER_MAX_SECONDS":                 "keys expire when they can no longer change a decision",
	"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT":       "to leave denied requests uncounted, set an algorithm for the limit, such as fixed-window",
	"REDIS_TIMEOUT":                                 "TIERLIMIT_DEADLINE bounds the time of a decision",
	"REDIS_PIPELINE_WINDOW":                         "requests share round trips without a setting",
	"REDIS_PIPELINE_LIMIT":                          "requests share round trips without a setting",
	"REDIS_CLUSTER_PIPELINE_PARALLELISM":            "a Cluster's masters are asked at the same time",
	"REDIS_POOL_ON_EMPTY_BEHAVIOR":                  "TIERLIMIT_DEADLINE bounds the time of a decision",
	"REDIS_POOL_ON_EMPTY_WAIT_DURATION":             "TIERLIMIT_DEADLINE bounds the time of a decision",
	"REDIS_STARTUP_INITIAL_INTERVAL":                "the service starts without Redis",
	"REDIS_STARTUP_MAX_INTERVAL":                    "the service starts without Redis",
	"REDIS_STARTUP_MAX_ELAPSED_TIME":                "the service starts without Redis",
	"REDIS_PERSECOND_TIMEOUT":                       "TIERLIMIT_DEADLINE bounds the time of a decision",
	"REDIS_PERSECOND_PIPELINE_WINDOW":               "requests share round trips without a setting",
	"REDIS_PERSECOND_PIPELINE_LIMIT":                "requests share round trips without a setting",
	"REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM":  "a Cluster's masters are asked at the same time",
	"REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR":        "TIERLIMIT_DEADLINE bounds the time of a decision",
	"REDIS_PERSECOND_POOL_ON_EMPTY_WAIT_DURATION":   "TIERLIMIT_DEADLINE bounds the time of a decision",
	"USE_DOG_STATSD_MOGRIFIERS":                     "names are sent unchanged: map them in the receiver",
	"PROMETHEUS_MAPPER_YAML":                        "names are those of envoyproxy/ratelimit's own mapping",
	"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS":      "ratelimit_service_response_time_seconds is in seconds",
	"XDS_CLIENT_BACKOFF_RANDOM_FACTOR":              "waits are randomized between half and all of the interval",
	"XDS_CLIENT_BACKOFF_JITTER":                     "waits are randomized between half and all of the interval",
	"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL": "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL sets when to try again",
}

// meaninglessGroups maps prefixes of the names of such variables to the reason.
var meaninglessGroups = map[string]string{
	"MEMCACHE_":             "counts are kept in Redis",
	"TRACING_":              "there is no tracing",
	"DOG_STATSD_MOGRIFIER_": "names are sent unchanged: map them in the receiver",
}

// meaninglessWithoutRedisTLS has the variables that configure TLS to Redis.
var meaninglessWithoutRedisTLS = map[string]string{
	"REDIS_TLS_CLIENT_CERT":                "connections to Redis are not encrypted (REDIS_TLS)",
	"REDIS_TLS_CLIENT_KEY":                 "connections to Redis are not encrypted (REDIS_TLS)",
	"REDIS_TLS_CACERT":                     "connections to Redis are not encrypted (REDIS_TLS)",
	"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION": "connections to Redis are not encrypted (REDIS_TLS)",
}

// meaninglessWithoutXDSTLS has the variables that configure TLS to the control plane.
var meaninglessWithoutXDSTLS = map[string]string{
	"CONFIG_GRPC_XDS_CLIENT_TLS_CERT":   "the connection to the control plane is not encrypted (CONFIG_GRPC_XDS_SERVER_USE_TLS)",
	"CONFIG_GRPC_XDS_CLIENT_TLS_KEY":    "the connection to the control plane is not encrypted (CONFIG_GRPC_XDS_SERVER_USE_TLS)",
	"CONFIG_GRPC_XDS_SERVER_TLS_CACERT": "the connection to the control plane is not encrypted (CONFIG_GRPC_XDS_SERVER_USE_TLS)",
	"CONFIG_GRPC_XDS_SERVER_TLS_SAN":    "the connection to the control plane is not encrypted (CONFIG_GRPC_XDS_SERVER_USE_TLS)",
}

// harmless has values of such variables that ask for nothing and need no warning.
var harmless = map[string][]string{
	"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT": {"false", "0"},
	"TRACING_ENABLED":                         {"false", "0"},
	"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION":    {"false", "0"},
}

const notSentToStatsd = "statistics are not sent to statsd (USE_STATSD, a STATSD_PROTOCOL other than tcp and udp, or a STATSD_PORT that is no port)"

// meaninglessWithoutStatsd has the variables that configure sending to statsd.
var meaninglessWithoutStatsd = map[string]string{
	"EXTRA_TAGS":           "statistics are not sent to statsd; for Prometheus, add labels in its scrape configuration",
	"STATSD_HOST":          notSentToStatsd,
	"STATSD_PORT":          notSentToStatsd,
	"STATSD_PROTOCOL":      notSentToStatsd,
	"STATS_FLUSH_INTERVAL": notSentToStatsd,
}

// meaninglessWithoutTLS has the variables that configure TLS and the authentication of clients.
var meaninglessWithoutTLS = map[string]string{
	"GRPC_SERVER_TLS_CERT":   "connections are not encrypted (GRPC_SERVER_USE_TLS)",
	"GRPC_SERVER_TLS_KEY":    "connections are not encrypted (GRPC_SERVER_USE_TLS)",
	"GRPC_CLIENT_TLS_CACERT": "clients need no certificate, because connections are not encrypted (GRPC_SERVER_USE_TLS)",
	"GRPC_CLIENT_TLS_SAN":    "clients need no certificate, because connections are not encrypted (GRPC_SERVER_USE_TLS)",
}

// meaninglessWithoutRedis has the variables that matter only until Redis can be reached.
var meaninglessWithoutRedis = map[string]string{
	"TIERLIMIT_FLEET_SIZE": "REDIS_URL is not set: this process counts alone",
	"TIERLIMIT_FLEET_FILE": "REDIS_URL is not set: this process counts alone",
}

// meaningless returns a line for each variable that is set and has no effect.
func (e *environment) meaningless(s *Settings) (lines []string) {
	if format := e.text("LOG_FORMAT", "text"); !strings.EqualFold(format, "text") && !strings.EqualFold(format, "json") {
		lines = append(lines, fmt.Sprintf("LOG_FORMAT is %q, must be text or json: lines are written as text", format))
	}
	for i, part := range strings.Split(e.values[nodeMetadata], ",") {
		if part != "" && !strings.Contains(part, "=") { // the part itself is not shown, because it may be a token
			lines = append(lines, fmt.Sprintf("%s has no \"=\" in its part %d, which has no effect: it must be like name=value,name=value", nodeMetadata, i+1))
		}
	}
	depends := []struct {
		idle bool // the variables in why have no effect
		why  map[string]string
	}{
		{s.Statsd.Network == "", meaninglessWithoutStatsd},
		{!s.UseTLS, meaninglessWithoutTLS},
		{s.TLS.ClientCA == "", map[string]string{"GRPC_CLIENT_TLS_SAN": "clients need no certificate (GRPC_CLIENT_TLS_CACERT)"}},
		{s.Redis.URL == "", meaninglessWithoutRedis},
		{!s.encryptsRedis(), meaninglessWithoutRedisTLS},
		{s.Redis.Files.Key == "", map[string]string{"REDIS_TLS_CLIENT_CERT": "REDIS_TLS_CLIENT_KEY is not set, so Redis is shown no certificate"}},
		{s.Redis.Files.Certificate == "", map[string]string{"REDIS_TLS_CLIENT_KEY": "REDIS_TLS_CLIENT_CERT is not set, so Redis is shown no certificate"}},
		{s.Redis.Type != "sentinel", map[string]string{"REDIS_SENTINEL_AUTH": "Redis is not found through Sentinel (REDIS_TYPE)"}},
		{!s.PerSecond, map[string]string{"REDIS_PERSECOND_URL": "limits per second are counted in the same Redis as all others (REDIS_PERSECOND)"}},
		{!s.UseXDS, map[string]string{"CONFIG_GRPC_XDS_SERVER_URL": "the configuration is read from files (CONFIG_TYPE)"}},
		{!s.XDS.UseTLS, meaninglessWithoutXDSTLS},
		{s.XDS.Key == "", map[string]string{"CONFIG_GRPC_XDS_CLIENT_TLS_CERT": "CONFIG_GRPC_XDS_CLIENT_TLS_KEY is not set, so the control plane is shown no certificate"}},
		{s.XDS.Certificate == "", map[string]string{"CONFIG_GRPC_XDS_CLIENT_TLS_KEY": "CONFIG_GRPC_XDS_CLIENT_TLS_CERT is not set, so the control plane is shown no certificate"}},
	}
	for _, name := range slices.Sorted(maps.Keys(e.values)) {
		value := e.values[name]
		why, ok := meaningless[name]
		for group, reason := range meaninglessGroups {
			if !ok && strings.HasPrefix(name, group) {
				why, ok = reason, true
			}
		}
		for _, group := range depends {
			if !ok && group.idle {
				why, ok = group.why[name]
			}
		}
		if ok && value != "" && !slices.Contains(harmless[name], strings.ToLower(value)) {
			lines = append(lines, fmt.Sprintf("%s is set but has no effect: %s", name, why))
		}
	}
	return lines
}

// encryptsRedis reports whether connections to Redis, or to at least one of two, are encrypted.
func (s *Settings) encryptsRedis() bool {
	encrypts := func(r *RedisSettings) bool { return r.TLS || strings.Contains(r.URL, "rediss://") }
	return encrypts(&s.Redis) || s.PerSecond && encrypts(&s.PerSecondRedis)
}
