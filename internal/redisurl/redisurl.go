// Package redisurl reads the URL of a Redis server: of one node, of a Cluster or of Sentinel. No error
// shows any part of the URL, since it may contain a password and parsers quote what they cannot read.
package redisurl

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrEmpty says that there is no URL.
	ErrEmpty = errors.New("the Redis URL is empty, must be like redis://127.0.0.1:6379")
	// ErrScheme says that the URL has another scheme.
	ErrScheme = errors.New("the Redis URL must begin with redis://, rediss:// or unix://, like redis://127.0.0.1:6379")
	// ErrUnreadable says that something in the URL is wrong.
	ErrUnreadable = errors.New("the Redis URL cannot be read; write it like redis://user:password@127.0.0.1:6379/0 " +
		"or unix:///run/redis.sock, " +
		"with special characters of the password percent-encoded (# as %23), and no line break at the end (the URL is not shown, because it may contain a password)")
	// ErrQuery says that the client cannot read the URL's parameters.
	ErrQuery = errors.New("the Redis URL has a parameter that is not known, or whose value cannot be read; after the address, " +
		"write parameters of go-redis, like ?pool_size=50&read_timeout=2s, and a ? in the password as %3F (the URL is not shown, because it may contain a password)")
	// ErrSeveral says that several addresses are written as one.
	ErrSeveral = errors.New("the Redis URL has several addresses, separated by commas; give the others as addr in the query: " +
		"redis://host:6379?addr=other:6379")
	// ErrPort says that a port is outside the range of valid ports.
	ErrPort = errors.New("a port in the Redis URL is not between 1 and 65535")
	// ErrPool says that go-redis cannot read a size of the connection pool, or would panic at it.
	ErrPool = fmt.Errorf("a size of the connection pool in the Redis URL (pool_size and the like) is negative or above %d", math.MaxInt32)
)

var schemes = []string{"redis", "rediss", "unix"}

// Parse returns the options of a client, and the part of the URL that may be shown to people: scheme,
// address and database. The forms are those of go-redis:
//
//	redis://user:password@host:6379/0               one node; rediss:// with TLS
//	unix://user:password@/path/to/redis.sock?db=0   one node on a Unix socket
//	redis://host:6379?addr=other:6379               a Cluster, by several of its nodes
//	redis://host:26379?master_name=mymaster         Sentinel, whose addresses these are
//
// The query accepts all parameters that go-redis does, like pool_size.
func Parse(text string) (options *redis.UniversalOptions, shown string, err error) {
	scheme, _, _ := strings.Cut(text, "://")
	switch {
	case text == "":
		return nil, "", ErrEmpty
	case !slices.Contains(schemes, scheme):
		return nil, "", ErrScheme
	}
	u, err := url.Parse(text)
	if err != nil || u.Fragment != "" || strings.HasSuffix(text, "#") { // a # in a password ends the address too early
		return nil, "", ErrUnreadable
	}
	if strings.Contains(u.Host, ",") {
		return nil, "", ErrSeveral
	}
	// Clients skip parts of a query that they cannot read, and a host in front of a socket's path. Either
	// may be a part of a password that contains a ? or /. The password's beginning would be taken for an
	// address.
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || scheme == "unix" && u.Host != "" {
		return nil, "", ErrUnreadable
	}
	// With an empty name, for example from an unset variable, the client would take the Sentinel for the
	// Redis server.
	if query.Has("master_name") && query.Get("master_name") == "" {
		return nil, "", ErrUnreadable
	}
	if !poolFits(query) {
		return nil, "", ErrPool
	}
	options, err = read(text, query)
	if err != nil && withoutSettings(*u, query) {
		return nil, "", ErrQuery
	}
	// No address may contain an @. In an address of the query, the @ would follow a password, which
	// belongs before the first address. If the database is negative, clients silently use the first one.
	if err != nil || options.DB < 0 || scheme != "unix" && strings.Contains(strings.Join(options.Addrs, ""), "@") {
		return nil, "", ErrUnreadable
	}
	if scheme != "unix" && slices.ContainsFunc(options.Addrs, hasSeveralPorts) {
		return nil, "", ErrUnreadable
	}
	if scheme != "unix" && slices.ContainsFunc(options.Addrs, hasNoPort) {
		return nil, "", ErrPort
	}
	shown = fmt.Sprintf("%s://%s/%d", scheme, strings.Join(options.Addrs, ","), options.DB)
	return options, shown, nil
}

// read reads a URL as its query says: that of Sentinel, of a Cluster, or of one node.
func read(text string, query url.Values) (*redis.UniversalOptions, error) {
	switch {
	case query.Has("master_name"):
		return ofSentinel(text)
	case query.Has("addr"):
		return ofCluster(text)
	}
	return ofNode(text)
}

// withoutSettings reports whether the URL can be read if its query has only addresses. The other parameters are to
// blame then.
func withoutSettings(u url.URL, query url.Values) bool {
	addresses := make(url.Values)
	for _, name := range []string{"master_name", "addr"} {
		if query.Has(name) {
			addresses[name] = query[name]
		}
	}
	u.RawQuery = addresses.Encode()
	_, err := read(u.String(), addresses)
	return err == nil
}

// hasSeveralPorts reports whether a host contains a colon and is no IPv6 address. Parsers take all but the last port
// of host:6379:1 for a part of the host.
func hasSeveralPorts(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	_, invalid := netip.ParseAddr(host)
	return err == nil && strings.Contains(host, ":") && invalid != nil
}

// hasNoPort reports whether the port is a number that is 0 or too large. The name of a port is left to
// the resolver.
func hasNoPort(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	n, notNumber := strconv.ParseUint(port, 10, 64)
	return err == nil && !errors.Is(notNumber, strconv.ErrSyntax) && (n == 0 || n > math.MaxUint16)
}

// poolFits reports whether go-redis accepts the sizes of the connection pool. go-redis reads them as an
// int. So on a 32-bit platform, it does not accept a number that is too large.
func poolFits(query url.Values) bool {
	for _, name := range []string{"pool_size", "min_idle_conns", "max_idle_conns", "max_active_conns"} {
		for _, value := range query[name] {
			n, err := strconv.ParseInt(value, 10, 32)
			if errors.Is(err, strconv.ErrRange) || n < 0 && name == "pool_size" {
				return false
			}
		}
	}
	return true
}

func ofNode(text string) (*redis.UniversalOptions, error) {
	o, err := redis.ParseURL(text)
	if err != nil {
		return nil, err
	}
	options := universal(o)
	options.Addrs = []string{o.Addr}
	return options, nil
}

func ofCluster(text string) (*redis.UniversalOptions, error) {
	o, err := redis.ParseClusterURL(text)
	if err != nil {
		return nil, err
	}
	options := universal(o)
	options.IsClusterMode = true
	return options, nil
}

func ofSentinel(text string) (*redis.UniversalOptions, error) {
	o, err := redis.ParseFailoverURL(text)
	if err != nil {
		return nil, err
	}
	options := universal(o)
	options.Addrs = o.SentinelAddrs
	return options, nil
}

// universal copies all settings of a client's options to the field of the same name in the options of all
// clients. So it covers everything that a URL may say, including settings that a later go-redis adds.
func universal(from any) *redis.UniversalOptions {
	options := &redis.UniversalOptions{}
	source, target := reflect.ValueOf(from).Elem(), reflect.ValueOf(options).Elem()
	for i := range target.NumField() {
		field := target.Type().Field(i)
		if value := source.FieldByName(field.Name); field.IsExported() && value.IsValid() && value.Type() == field.Type {
			target.Field(i).Set(value)
		}
	}
	return options
}
