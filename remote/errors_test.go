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
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/quietconn"
	"github.com/tierlimit/tierlimit/limit"
)

// serverSays is an error reply of a server.
type serverSays string

func (s serverSays) Error() string { return string(s) }
func (serverSays) RedisError()     {}

// These errors are hard to get from a real server in a test. Their texts are those of real servers.
func TestKindOf(t *testing.T) {
	const inScript = "ERR Error running script (call to f_6b1bf486): @user_script:148: "
	for kind, errs := range map[Kind][]error{
		Timeout: {
			ErrNoAnswer,
			context.DeadlineExceeded,
			os.ErrDeadlineExceeded,
			redis.ErrPoolTimeout,
			&net.OpError{Op: "dial", Err: &net.DNSError{IsTimeout: true}},
		},
		Unreachable: {
			io.EOF,
			io.ErrUnexpectedEOF,
			syscall.ECONNRESET,
			&net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH},
			&net.DNSError{Err: "no such host", Name: "redis.invalid", IsNotFound: true},
			redis.ErrClosed,
		},
		Auth: {
			&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
			serverSays("NOAUTH Authentication required."),
			serverSays("ERR invalid password"), // before Redis 6
			serverSays("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"),
			serverSays("DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user."),
			serverSays("ERR ACL failure in script: User limiter has no permissions to run the 'set' command script: 6b1bf486, on @user_script:148."), // Redis 7.2
			serverSays(inScript + "@user_script: 148: -NOPERM The user executing the script can't run this command or subcommand"),
		},
		Unavailable: {
			serverSays("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."),
			serverSays("TRYAGAIN Multiple keys request during rehashing of slot"),
			serverSays("MOVED 3999 127.0.0.1:6381"), // from a node, to a client of one node
			serverSays("ASK 3999 127.0.0.1:6381"),
			serverSays(inScript + "@user_script: 148: -READONLY You can't write against a read only replica."),
			serverSays(inScript + "@user_script: 148: -OOM command not allowed when used memory > 'maxmemory'."),
		},
		Protocol: {
			serverSays("ERR unknown command `EVALSHA`, with args beginning with: "),
			serverSays(inScript + "ERR syntax error"),
			serverSays(inScript + "@user_script: 148: Write commands not allowed after non deterministic commands. Call redis.replicate_commands() at the start of your script"),
			errors.New(`redis: invalid reply: "\x00"`),
		},
		Other: {
			errors.New("something else"),
			context.Canceled,
			serverSays("ERR something else"),
			serverSays("WRONGTYPE Operation against a key holding the wrong kind of value"),
			serverSays("ERR Error running script"),
			serverSays("ERR value is not an integer; NOAUTH, LOADING, unknown command"),
			errReply,
		},
	} {
		for _, err := range errs {
			for _, err := range []error{err, fmt.Errorf("heartbeat: %w", err)} {
				if got := KindOf(err); got != kind {
					t.Errorf("%v is %q, want %q", err, got, kind)
				}
			}
		}
	}
}

// What logs and people see of an error has no keys in it, and begins with what is wrong.
func TestReadable(t *testing.T) {
	const inScript = "ERR Error running script (call to f_6b1bf486): @user_script:148: "
	for err, want := range map[error]string{
		serverSays("ERR unknown command `evalsha`, with args beginning with: `6b1bf486` `1` `tl:{user 17}:search`"): "unknown command `evalsha`",

		serverSays(inScript + "@user_script: 148: -OOM command not allowed when used memory > 'maxmemory'."): "OOM command not allowed when used memory > 'maxmemory'.",
		serverSays(inScript + "attempt to index a nil value"):                                                inScript + "attempt to index a nil value",
		serverSays("OOM command not allowed"):                                                                "OOM command not allowed",
		serverSays("ERR Protocol error: unauthenticated multibulk length"):                                   "NOAUTH Authentication required (Protocol error: unauthenticated multibulk length)",
		io.EOF: "EOF",
	} {
		got := readable(err)
		if got.Error() != want || KindOf(got) != KindOf(err) || MayHaveRun(got) != MayHaveRun(err) {
			t.Errorf("%v: %v, want %s", err, got, want)
		}
	}
	if readable(nil) != nil {
		t.Error("an error")
	}
}

// Law 6: errors that waiting does not fix say what to do. Misconfigured leaves other errors to the breaker.
func TestMisconfigured(t *testing.T) {
	for err, want := range map[error]struct {
		sentinel error
		advice   string
	}{
		serverSays("NOAUTH Authentication required."):                                                                       {limit.ErrAuth, "check the user name and the password"},
		serverSays("NOPERM No permissions to access a key"):                                                                 {limit.ErrAuth, "needs access to the keys PREFIX:*"},
		serverSays("ERR The user executing the script can't run this command or subcommand script: f"):                      {limit.ErrAuth, "needs access to the keys PREFIX:*"},
		serverSays("ERR ACL failure in script: User u has no permissions to run the 'set' command"):                         {limit.ErrAuth, "needs access to the keys PREFIX:*"},
		serverSays("ERR unknown command `EVALSHA`"):                                                                         {limit.ErrNotRedis, "check the address"},
		serverSays("ERR Error running script (call to f_6b1bf486): @user_script:148: @user_script: 148: -ERR syntax error"): {limit.ErrNotRedis, "Redis 6.2 or newer"},
		&net.OpError{Op: "dial", Err: &net.AddrError{Err: "missing port in address", Addr: "redis.internal"}}:               {limit.ErrInvalidOption, "must be like 127.0.0.1:6379"},
		&net.OpError{Op: "dial", Err: &net.AddrError{Err: "no suitable address found", Addr: "redis.internal"}}:             {},
		serverSays("ERR DB index is out of range"):                                                                          {limit.ErrInvalidOption, "database"},
		serverSays("ERR unknown subcommand 'maint_notifications'. Try CLIENT HELP."):                                        {limit.ErrInvalidOption, "MaintNotificationsConfig"},
		serverSays("ERR SELECT is not allowed in cluster mode"):                                                             {limit.ErrInvalidOption, "0 on a Cluster"},
		serverSays("ERR This instance has cluster support disabled"):                                                        {limit.ErrInvalidOption, "a single address"},
		&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}:                                                {limit.ErrTLS, "RootCAs"},
		&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}:                          {},
		serverSays("LOADING"):        {},
		io.EOF:                       {},
		ErrNoAnswer:                  {},
		errors.New("something else"): {},
	} {
		got := Misconfigured(err)
		if want.sentinel == nil {
			if got != nil {
				t.Errorf("%v: %v, want nothing", err, got)
			}
			continue
		}
		if !errors.Is(got, want.sentinel) || !errors.Is(got, err) || !strings.Contains(got.Error(), want.advice) {
			t.Errorf("%v: %v; want it, %v, and %q", err, got, want.sentinel, want.advice)
		}
	}
}

// Metrics have a label for each kind that KindOf returns.
func TestKinds(t *testing.T) {
	seen := make(map[Kind]bool)
	for _, kind := range Kinds() {
		if kind == "" || seen[kind] {
			t.Errorf("kind %q", kind)
		}
		seen[kind] = true
	}
	if len(seen) != 6 {
		t.Errorf("%d kinds", len(seen))
	}
}

// Law 3: MayHaveRun is false only for errors which prove that nothing was charged.
func TestLaw3MayHaveRun(t *testing.T) {
	for want, errs := range map[bool][]error{
		true: {
			ErrNoAnswer,
			fmt.Errorf("%w: %w", ErrNoAnswer, context.DeadlineExceeded),
			io.EOF,
			&net.OpError{Op: "read", Err: syscall.ECONNRESET},
			&net.OpError{Op: "write", Err: syscall.EPIPE}, // part of the command may have been written
			&net.OpError{Op: "remote error", Err: errors.New("tls: bad record MAC")},
			serverSays("ERR user_function:12: attempt to index a nil value"),
			serverSays("ERR The user executing the script can't run this command or subcommand script: f, on @user_function:12."),
			serverSays("ERR ACL failure in script: User u has no permissions to run the 'set' command script: f, on @user_function:12."),
			serverSays("ERR Error running script (call to f_12): @user_script:12: @user_script: 12: Unknown Redis command called from Lua script"),
		},
		false: {
			errNotSent, errLate, errHurriedNotSent,
			fmt.Errorf("%w: %q", ErrUnreadable, "k"),
			ErrNoRoom,
			fmt.Errorf("%w: %w", ErrNoAnswer, redis.ErrPoolTimeout),
			redis.ErrPoolExhausted,
			quietconn.ErrClosedIdle,
			&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
			&net.OpError{Op: "remote error", Err: errors.New("tls: expired certificate")},
			&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
			&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded},
			&net.DNSError{Err: "no such host", Name: "redis.invalid", IsNotFound: true},
			serverSays("LOADING Redis is loading the dataset in memory"),
			serverSays("READONLY You can't write against a read only replica."),
			serverSays("NOAUTH Authentication required."),
			serverSays("CLUSTERDOWN The cluster is down"),
		},
	} {
		for _, err := range errs {
			if MayHaveRun(err) != want {
				t.Errorf("%q: may have run: %v", err, !want)
			}
		}
	}
}

// Under overload most calls end with ErrNoRoom, and each of them calls MayHaveRun.
func TestMayHaveRunAllocatesNothingForLackOfRoom(t *testing.T) {
	n := testing.AllocsPerRun(100, func() {
		if MayHaveRun(ErrNoRoom) {
			t.Fatal("a call that found no room may have run")
		}
	})
	if n > 0 {
		t.Errorf("MayHaveRun(ErrNoRoom) allocates %v times, want 0", n)
	}
}

// However its caller's own context ends, a call ends with the context's error, and it is no failure of Redis.
func TestTheEndOfACallersContextIsItsOwn(t *testing.T) {
	for _, of := range []error{context.Canceled, context.DeadlineExceeded, errors.New("an error of the program's own")} {
		if err := ended(of); !errors.Is(err, of) || !IsCallers(err) {
			t.Errorf("%v ends a call with %v", of, err)
		}
	}
}
