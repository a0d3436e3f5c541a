package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/quietconn"
	"github.com/tierlimit/tierlimit/limit"
)

// ErrNoAnswer means that Redis did not answer before the deadline. The entry may have been charged
// if Redis had received it; if it is still on its way, it will not be charged.
var ErrNoAnswer = errors.New("tierlimit: no answer from Redis before the deadline")

// ErrNoRoom means that more decisions are waiting than Redis can make in time, or than Options.Queue allows.
// The entry was not sent. It is a single value, because under overload many calls end with it.
var ErrNoRoom = fmt.Errorf("%w: too many decisions are waiting for it: %w", ErrNoAnswer, errNotRun)

// ErrUnreadable means that the key's value in Redis is not this library's, is damaged, or was written by a
// later version of it. The value is left as it is, until it expires or is forgotten (lua.Forget).
var ErrUnreadable = errors.New("tierlimit: a key's state in Redis cannot be read: it is damaged, of another type, or of a later version; reset the key with Rule.Reset, or wait until it expires")

// Kind classifies errors of Redis, and of the network path to it, for metrics.
type Kind string

// The kinds.
const (
	Timeout     Kind = "timeout"     // no answer in time, or no free connection to send on
	Unreachable Kind = "unreachable" // refused, reset, no route, no such host
	Auth        Kind = "auth"        // credentials, permissions, certificates or protected mode
	Unavailable Kind = "unavailable" // Redis answers, but cannot serve (LOADING, READONLY, OOM, ...)
	Protocol    Kind = "protocol"    // the server does not speak Redis's protocol, or lacks scripts
	Other       Kind = "other"
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{Timeout, Unreachable, Auth, Unavailable, Protocol, Other}
}

// Prefixes of a server's errors, after "ERR ". The same problem has different texts in different versions,
// commands and scripts of Redis, and few of the texts have a code.
var (
	// scriptErrors end the script at a command which this user may not run, or which the server lacks. Earlier
	// commands of the same run have been executed. Errors of the server's state, such as OOM and READONLY, come only
	// before the first write.
	scriptErrors  = slices.Concat(scriptRights, scriptUnknown)
	scriptRights  = []string{"The user executing the script", "ACL failure in script"}
	scriptUnknown = []string{"Unknown Redis command called from", "Unknown command called from"} // the last is Valkey's

	rightsErrors = append([]string{"NOPERM"}, scriptRights...) // the user lacks the permission
	authErrors   = append([]string{
		"NOAUTH", "WRONGPASS", "AUTH ", "invalid password", "invalid username-password",
		unauthenticatedError,
		"DENIED", // protected mode
	}, rightsErrors...)
	unavailableErrors = []string{
		"LOADING", "READONLY", "MASTERDOWN", "OOM", "BUSY", "MISCONF", "NOREPLICAS", "max number of clients",
		"CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK",
	}
	protocolErrors = append([]string{
		"unknown command", oldServerError,
		wholeScriptsError,
	}, scriptUnknown...)
)

// unauthenticatedError is in the answer to a long command, such as a heartbeat, instead of NOAUTH.
const unauthenticatedError = "Protocol error: unauthenticated"

// oldServerError is the answer to SET with PXAT, before Redis 6.2.
const oldServerError = "syntax error"

// wholeScriptsError is the answer of a Redis 6.2 that sends whole scripts to its replicas, and not what the scripts
// write. It then refuses to write after a script has read the clock.
const wholeScriptsError = "Write commands not allowed after non deterministic commands"

// databaseErrors are a server's answers to a SELECT of a database that does not exist, on one node and on a
// Cluster.
var databaseErrors = []string{"DB index is out of range", "SELECT is not allowed in cluster mode"}

// clientNameError is the answer to a client whose name, which it sets on each new connection, has a space or the like.
const clientNameError = "Client names cannot contain"

// maintNotificationsError is in the answer to a client that insists on maintenance notifications, from a server that
// does not send them. The answer comes on each new connection.
const maintNotificationsError = "'maint_notifications'"

// noClusterError is the answer to a Cluster's client from a server that is no node of a Cluster.
const noClusterError = "This instance has cluster support disabled"

// scriptWrapper is the beginning of errors of scripts before Redis 7.
const scriptWrapper = "ERR Error running script"

// KindOf returns the kind of an error, which must not be nil.
func KindOf(err error) Kind {
	text, fromServer := serverError(err)
	netErr, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, ErrNoAnswer), errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return Timeout
	case beginsWithAny(text, authErrors):
		return Auth
	case beginsWithAny(text, unavailableErrors):
		return Unavailable
	case beginsWithAny(text, protocolErrors), strings.Contains(text, maintNotificationsError):
		return Protocol
	case fromServer:
		return Other
	case strings.Contains(err.Error(), "redis: can't parse"), strings.Contains(err.Error(), "redis: invalid reply"),
		isNotTLS(err):
		return Protocol
	case isOfCertificates(err):
		return Auth
	case isNet && netErr.Timeout():
		return Timeout
	case isNet, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, redis.ErrClosed):
		return Unreachable
	}
	return Other
}

func beginsWithAny(text string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
}

// isA reports whether an error of type E is in the tree of err.
func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// isOfCertificates reports whether a TLS handshake failed because of the server's certificate, or because of
// this client's certificate, which the server reports in an alert.
func isOfCertificates(err error) bool {
	alert, ok := errors.AsType[*net.OpError](err)
	return isA[*tls.CertificateVerificationError](err) ||
		ok && alert.Op == "remote error" && strings.Contains(alert.Err.Error(), "certificate")
}

// isNotTLS reports whether a TLS handshake failed because the server does not speak TLS. After a handshake, a damaged
// answer is a RecordHeaderError, too.
func isNotTLS(err error) bool {
	record, ok := errors.AsType[tls.RecordHeaderError](err)
	return ok && record.Conn != nil
}

// isUndialable reports whether an address has no port, or another form that nobody can connect to. What a resolver knows
// of the host may change, so it does not count.
func isUndialable(err error) bool {
	bad, ok := errors.AsType[*net.AddrError](err)
	return ok && bad.Err != "no suitable address found"
}

// serverError returns the server's text, if the error is from the server. An error of a command within a script
// begins like that of the command itself. Before Redis 7 it is at the end of an error about the script, as in
// "...: @user_script: 12: -OOM ...".
func serverError(err error) (text string, ok bool) {
	if away, ok := errors.AsType[turnedAway](err); ok {
		return strings.TrimPrefix(string(away), "ERR "), true
	}
	redisErr, ok := errors.AsType[redis.Error](err)
	if !ok {
		return "", false
	}
	if text = redisErr.Error(); strings.HasPrefix(text, scriptWrapper) {
		parts := strings.Split(text, "@user_script:")
		text = strings.TrimLeft(parts[len(parts)-1], " 0123456789:-")
	}
	return strings.TrimPrefix(text, "ERR "), true
}

// readable returns an error of a command as logs and people should see it.
//
// A server that wants a password answers a long command with an error of its protocol, which does not say so.
//
// A server quotes the arguments of a command that it does not know, and they include keys, which must not be logged.
// Before Redis 7, an error of a command within a script is at the end of an error about the script. It is returned
// without that, as newer servers return it, if it says something about the server. Otherwise the script is to blame,
// and where in the script it happened must not be lost.
func readable(err error) error {
	text, _ := serverError(err)
	if text == "" {
		return err
	}
	if reason, _, quotes := strings.Cut(text, ", with args beginning with"); quotes {
		return refusal(reason)
	}
	if strings.HasPrefix(text, unauthenticatedError) {
		return refusal("NOAUTH Authentication required (" + text + ")")
	}
	if strings.HasPrefix(err.Error(), scriptWrapper) && KindOf(err) != Other {
		return refusal(text)
	}
	return err
}

// refusal is a server's error text.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError makes a refusal a redis.Error.
func (refusal) RedisError() {}

var (
	errNotRun  = errors.New("nothing has changed in Redis")
	errNotSent = fmt.Errorf("%w: not sent: %w", ErrNoAnswer, errNotRun)
	errLate    = fmt.Errorf("%w: the request reached Redis too late: %w", ErrNoAnswer, errNotRun)

	errAbandoned = fmt.Errorf("%w: the goroutine that asked Redis ended", ErrNoAnswer)

	// ErrInDoubt means that the entry was not sent because its key is in doubt: it is not known yet whether an
	// earlier entry has changed how many units the process holds.
	ErrInDoubt = fmt.Errorf("%w: the result of an earlier request for the key is not known yet: %w", ErrNoAnswer, errNotRun)
)

// The end of a caller's own context is no failure of Redis.
var (
	errEnded   = errors.New("tierlimit: the caller's context ended before Redis answered")
	errHurried = fmt.Errorf("%w: %w", errEnded, context.DeadlineExceeded)

	errHurriedNotSent = fmt.Errorf("%w: %w", errHurried, errNotRun)
)

// ended returns the error of a call whose context has ended.
func (c *call) ended() error {
	err := ended(c.ctx.Err())
	if c.state.Load() != callSent {
		err = fmt.Errorf("%w: %w", err, errNotRun)
	}
	return err
}

// ended returns the error of a call that was sent, and whose context has ended with err.
func ended(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return errHurried
	}
	return fmt.Errorf("%w: %w", errEnded, err)
}

// IsCallers reports whether a decision was not made because its caller's own context ended
// first.
func IsCallers(err error) bool { return errors.Is(err, errEnded) || errors.Is(err, context.Canceled) }

// MayHaveRun reports whether Redis may have made and charged a decision that ended with this error. That is so
// if the decision was sent, and nothing proves that it did not run.
func MayHaveRun(err error) bool {
	switch {
	case errors.Is(err, errNotRun), // checked first, because under overload most calls end with ErrNoRoom
		errors.Is(err, ErrUnreadable), errors.Is(err, quietconn.ErrClosedIdle), isOfCertificates(err), isNotTLS(err),
		errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), isA[*net.DNSError](err):
		return false
	}
	if onTheWay, ok := errors.AsType[*net.OpError](err); ok {
		return onTheWay.Op != "dial"
	}
	if text, ok := serverError(err); ok {
		// All other kinds mean that the script did not start, or wrote nothing.
		return beginsWithAny(text, scriptErrors) || KindOf(err) == Other
	}
	return true
}

// Misconfigured returns, for an error that waiting does not solve, an error that says what to do, and nil for all
// other errors. Those include an expired certificate, since Redis's certificate may be renewed.
func Misconfigured(err error) error {
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](err)
	text, _ := serverError(err)
	switch kind := KindOf(err); {
	case isInvalid && invalid.Reason == x509.Expired:
		return nil
	case isOfCertificates(err):
		return fmt.Errorf("%w: check the authority (RootCAs), the host name (ServerName) and this client's Certificates in the client's TLSConfig: %w", limit.ErrTLS, err)
	case kind == Auth && beginsWithAny(text, rightsErrors):
		return fmt.Errorf("%w: the Redis user needs access to the keys PREFIX:* (tl:* unless tiered.Prefix is set) and to the commands that docs/operating.md lists under \"The Redis user\": %w", limit.ErrAuth, err)
	case kind == Auth:
		return fmt.Errorf("%w: check the user name and the password: %w", limit.ErrAuth, err)
	case strings.Contains(text, maintNotificationsError):
		return fmt.Errorf("%w: check the client's MaintNotificationsConfig: its mode must not be ModeEnabled with this server, which has no maintenance notifications: %w", limit.ErrInvalidOption, err)
	case strings.HasPrefix(text, wholeScriptsError):
		return fmt.Errorf("%w: its setting lua-replicate-commands must be yes: %w", limit.ErrNotRedis, err)
	case strings.HasPrefix(text, oldServerError):
		return fmt.Errorf("%w: it must be Redis 6.2 or newer, or Valkey: %w", limit.ErrNotRedis, err)
	case kind == Protocol:
		return fmt.Errorf("%w: check the address: %w", limit.ErrNotRedis, err)
	case isUndialable(err):
		return fmt.Errorf("%w: the address of Redis must be like 127.0.0.1:6379 or [::1]:6379, with a port from 1 to 65535: %w", limit.ErrInvalidOption, err)
	case beginsWithAny(text, databaseErrors):
		return fmt.Errorf("%w: check the database number (DB), which must be 0 on a Cluster: %w", limit.ErrInvalidOption, err)
	case strings.HasPrefix(text, clientNameError):
		return fmt.Errorf("%w: check the client's ClientName (client_name in a URL): %w", limit.ErrInvalidOption, err)
	case strings.HasPrefix(text, noClusterError):
		return fmt.Errorf("%w: the Redis client is for a Cluster (redis.NewClusterClient, several addresses, or IsClusterMode), but the server is not part of one: "+
			"give a single address, or the addresses of Sentinels and a MasterName: %w", limit.ErrInvalidOption, err)
	}
	return nil
}
