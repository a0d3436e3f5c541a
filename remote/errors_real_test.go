package remote

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// Each error here is one that decisions actually get. It comes from a real server where a real server can be made
// to return it.
func TestKindsOfRealErrors(t *testing.T) {
	t.Parallel()
	auth, notRedis := limit.ErrAuth, limit.ErrNotRedis
	type realError struct {
		name          string
		client        func(t *testing.T) redis.UniversalClient
		says          string // part of the error's text, which shows that it is the intended error
		kind          Kind
		misconfigured error
	}
	var noFunctions, withoutFCALL []string // a server without functions does not know FCALL
	var older []realError                  // errors that only such a server has
	if redistest.HasFunctions(t) {
		noFunctions, withoutFCALL = []string{"-fcall"}, []string{"--rename-command", "FCALL", ""}
	} else {
		older = append(older, realError{"whole scripts go to replicas", serverWith("--lua-replicate-commands", "no"), "non deterministic", Protocol, notRedis})
	}
	for _, test := range append(older, []realError{
		{"wrong password", withPassword("secret", "wrong"), "WRONGPASS", Auth, auth},
		{"no password", withPassword("secret", ""), "NOAUTH", Auth, auth},
		{"user without EVALSHA", asUser(append([]string{"~*", "+@all", "-evalsha"}, noFunctions...)...), "NOPERM", Auth, auth},
		{"user without SET, within the script", asUser("~*", "+@all", "-set"), "script", Auth, auth},
		{"user without the keys", asUser("~other:*", "+@all"), "NOPERM", Auth, auth},

		{"no EVALSHA", serverWith(append([]string{"--rename-command", "EVALSHA", ""}, withoutFCALL...)...), "unknown command", Protocol, notRedis},
		{"no SET, within the script", serverWith("--rename-command", "SET", ""), "script", Protocol, notRedis},
		{"a web server", dial(webServer), "", Protocol, notRedis},
		{"a web server, with TLS", dialTLS(webServer), "TLS", Protocol, notRedis},
		{"an SSH server", dial(greeting("SSH-2.0-OpenSSH_9.6")), "", Protocol, notRedis},
		{"a memcached", dial(answering("ERROR")), "", Protocol, notRedis},

		{"read-only replica", serverWith("--replicaof", "127.0.0.1", "1"), "READONLY", Unavailable, nil},
		{"replica without its master", serverWith("--replicaof", "127.0.0.1", "1", "--replica-serve-stale-data", "no"), "MASTERDOWN", Unavailable, nil},
		{"too few replicas", serverWith("--min-replicas-to-write", "1"), "NOREPLICAS", Unavailable, nil},
		{"out of memory", serverWith("--maxmemory", "1"), "OOM", Unavailable, nil},
		{"busy with a script", busyServer, "BUSY", Unavailable, nil},
		{"too many clients", dial(answering("-ERR max number of clients reached")), "max number of clients", Unavailable, nil},
		{"too many clients of a real server", fullServer, "max number of clients", Unavailable, nil},
		{"protected mode", dial(turningAway("-DENIED Redis is running in protected mode")), "DENIED", Auth, auth},
		{"a Cluster without slots", serverWith("--cluster-enabled", "yes"), "CLUSTERDOWN", Unavailable, nil},
		{"starting", dial(answering("-LOADING Redis is loading the dataset in memory")), "LOADING", Unavailable, nil},

		{"never answers", dial(silent), "", Timeout, nil},
		{"frozen", frozenServer, "", Timeout, nil},
		{"no free connection", exhaustedPool(func(o *redis.Options) { o.PoolSize = 1 }), "pool timeout", Timeout, nil},
		{"no further connection", exhaustedPool(func(o *redis.Options) { o.MaxActiveConns = 1 }), "pool exhausted", Timeout, nil},

		{"refused", dial(refusing), "refused", Unreachable, nil},
		{"hangs up", dial(hangingUp), "", Unreachable, nil},
		{"closed client", closedClient, "closed", Unreachable, nil},
		{"no Sentinel", noSentinel, "", Unreachable, nil},
		{"no node of the Cluster", noCluster, "", Unreachable, nil},
	}...) {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			// Only a server that does not answer takes all of its time. The others need time on a busy machine.
			within := time.Minute
			if test.kind == Timeout && test.says == "" {
				within = time.Second
			}
			err := decisionError(t, test.client(t), within)
			t.Logf("%T: %v", err, err)
			if !strings.Contains(err.Error(), test.says) {
				t.Fatalf("%v; want an error saying %q", err, test.says)
			}
			if kind := KindOf(err); kind != test.kind {
				t.Errorf("%v is %q, want %q", err, kind, test.kind)
			}
			got := Misconfigured(err)
			if !errors.Is(got, test.misconfigured) || got != nil && !errors.Is(got, err) {
				t.Errorf("misconfigured: %v, want one that is %v and the error itself", got, test.misconfigured)
			}
		})
	}
}

// Nothing was charged on a connection that the server has closed at once: what is decided without it is charged later.
func TestWhoIsTurnedAwayHasChargedNothing(t *testing.T) {
	t.Parallel()
	for _, client := range []redis.UniversalClient{fullServer(t), dial(turningAway("-DENIED Redis is running in protected mode"))(t)} {
		if err := decisionError(t, client, time.Minute); MayHaveRun(err) {
			t.Errorf("it may have run: %v", err)
		}
	}
}

// Law 3: if an answer is damaged on its way through a TLS connection, the command may have run. A damaged answer to the
// handshake comes before any command.
func TestLaw3DamagedAnswersWithTLS(t *testing.T) {
	t.Parallel()
	web := httptest.NewTLSServer(http.NotFoundHandler())
	defer web.Close()
	server := func(t *testing.T) string {
		return listen(t, func(conn net.Conn) {
			encrypted, b := tls.Server(conn, &tls.Config{Certificates: web.TLS.Certificates}), make([]byte, 4096)
			for {
				n, err := encrypted.Read(b)
				switch asked := bytes.ToUpper(b[:n]); {
				case err != nil:
					return
				case bytes.Contains(asked, []byte("EVALSHA")), bytes.Contains(asked, []byte("FCALL")):
					_, _ = fmt.Fprint(conn, "no record of TLS")
				default: // a command with which the client begins each connection
					_, _ = fmt.Fprint(encrypted, "-ERR unknown command\r\n")
				}
			}
		})
	}
	client := dial(server, func(o *redis.Options) { o.TLSConfig = &tls.Config{InsecureSkipVerify: true} })(t)
	if err := decisionError(t, client, time.Minute); !isA[tls.RecordHeaderError](err) || !MayHaveRun(err) || Misconfigured(err) != nil {
		t.Errorf("%v: may have run: %v, advice: %v", err, MayHaveRun(err), Misconfigured(err))
	}
	if err := decisionError(t, dialTLS(webServer)(t), time.Minute); !isA[tls.RecordHeaderError](err) || MayHaveRun(err) {
		t.Errorf("the handshake: %v: may have run: %v", err, MayHaveRun(err))
	}
}

// Law 3: if the user lacks a right that only one entry of a batch needs, the entries before it have been charged,
// although the whole batch fails.
func TestLaw3ARightThatIsMissedWithinTheScript(t *testing.T) {
	t.Parallel()
	forms := []string{"+evalsha"}
	if redistest.HasFunctions(t) {
		forms = []string{"+fcall", "-fcall"}
	}
	for _, form := range forms {
		client := redistest.Start(t).Client(t)
		may := func(right string) {
			t.Helper()
			if err := client.Do(t.Context(), "ACL", "SETUSER", "default", right).Err(); err != nil {
				t.Fatal(err)
			}
		}
		may(form)
		script := NewScript(client)
		first := Entry{Key: "first", Rule: newRule(t, limit.PerMinute(10), limit.GCRA()), Cost: 1}
		second := Entry{Key: "second", Rule: newRule(t, limit.PerMinute(10), limit.SlidingLog()), Cost: 1}
		runAll(t, script, []Entry{second}) // so that the next charge changes the key with SETRANGE
		may("-setrange")
		_, err := script.Run(t.Context(), []Entry{first, second}, 0)
		if err == nil {
			t.Fatalf("%s: no error", form)
		}
		may("+setrange")
		first.Operation = lua.Peek
		if r := runAll(t, script, []Entry{first})[0]; r.Remaining != 9 {
			t.Fatalf("%s: %d are left of the first key, so that it was not charged", form, r.Remaining)
		}
		if !MayHaveRun(err) {
			t.Errorf("%s: an entry was charged, and yet nothing can have run: %v", form, err)
		}
	}
}

// A right to read that is missing is an error of kind Auth, or not needed. It does not make a key look damaged, which
// would tell the operator to reset it, and would be no reason for an outage.
func TestAMissingRightToReadIsNoDamage(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	may := func(rights ...any) {
		t.Helper()
		if err := client.Do(t.Context(), append([]any{"ACL", "SETUSER", "default"}, rights...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	script := NewScript(client)
	slots, err := NewSlotsRule(limit.Concurrent(10), time.Minute, Holder{1})
	if err != nil {
		t.Fatal(err)
	}
	rules := map[string]*Rule{"slots": slots}
	for _, a := range []limit.Algorithm{limit.SlidingLog(), limit.SlidingLogZSet(), limit.SlidingCounter(16, limit.Strict), limit.GCRA(), limit.FixedWindow()} {
		rules[a.String()] = newRule(t, limit.PerMinute(100), a)
	}
	for name, r := range rules {
		hold := &Hold{ID: 1, Life: time.Minute}
		for what, e := range map[string]Entry{
			"take": {Operation: lua.Take}, "peek": {Operation: lua.Peek}, "refund": {Operation: lua.Refund, Charged: 1},
			"hold": {Operation: lua.Hold, Hold: hold}, "settle": {Operation: lua.Settle, Hold: hold},
		} {
			if e.Hold != nil && r == slots {
				continue
			}
			for _, known := range []bool{false, true} {
				e.Key, e.Rule, e.Cost = redistest.Prefix()+"k", r, 1
				if known {
					runAll(t, script, []Entry{{Key: e.Key, Rule: r, Cost: 1}})
				}
				may("-get", "-getrange", "-zrange")
				_, err := script.Run(t.Context(), []Entry{e}, 0)
				may("-get", "+getrange", "+zrange")
				replies, errGet := script.Run(t.Context(), []Entry{e}, 0)
				may("+get")
				if err == nil || KindOf(err) != Auth {
					t.Errorf("%s, %s of a key that exists: %v, without any right to read: %v", name, what, known, err)
				}
				if errGet != nil && KindOf(errGet) != Auth || errGet == nil && (replies[0].Err != nil || replies[0].Status == Unreadable) {
					t.Errorf("%s, %s of a key that exists: %v, without the right to GET: %+v, %v", name, what, known, replies, errGet)
				}
			}
		}
	}
}

// decisionError makes one decision, which must fail within the given time, and returns its error.
func decisionError(t *testing.T, client redis.UniversalClient, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	rule := newRule(t, limit.PerMinute(10), limit.SlidingLog())
	replies, err := NewScript(client).Run(ctx, []Entry{{Key: "rl:{alice}:search", Rule: rule, Cost: 1}}, 0)
	if err == nil {
		t.Fatalf("a decision: %+v, want an error", replies)
	}
	return err
}

func serverWith(args ...string) func(t *testing.T) redis.UniversalClient {
	return func(t *testing.T) redis.UniversalClient { return redistest.Start(t, args...).Client(t) }
}

func withPassword(theirs, ours string) func(t *testing.T) redis.UniversalClient {
	return func(t *testing.T) redis.UniversalClient {
		server := redistest.Start(t)
		admin := server.Client(t)
		if err := admin.ConfigSet(context.Background(), "requirepass", theirs).Err(); err != nil {
			t.Fatal(err)
		}
		return server.Client(t, func(o *redis.Options) { o.Password = ours })
	}
}

func asUser(rules ...string) func(t *testing.T) redis.UniversalClient {
	return func(t *testing.T) redis.UniversalClient {
		server := redistest.Start(t)
		user := append([]string{"on", ">secret", "resetchannels"}, rules...)
		if err := server.Client(t).ACLSetUser(context.Background(), "limiter", user...).Err(); err != nil {
			t.Fatal(err)
		}
		return server.Client(t, func(o *redis.Options) { o.Username, o.Password = "limiter", "secret" })
	}
}

// busyServer returns a client of a server that is running somebody's endless script.
func busyServer(t *testing.T) redis.UniversalClient {
	server := redistest.Start(t, "--lua-time-limit", "1")
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	other := server.Client(t)
	go func() { _ = other.Eval(ctx, "while true do end", nil).Err() }()
	client := server.Client(t)
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if err := client.Ping(ctx).Err(); err != nil {
			return client
		}
	}
	t.Fatal("the server does not get busy")
	return nil
}

// fullServer returns a client of a server that closes new connections, because it has as many clients as it may have.
func fullServer(t *testing.T) redis.UniversalClient {
	server := redistest.Start(t)
	if err := server.Client(t).ConfigSet(t.Context(), "maxclients", "1").Err(); err != nil { // and this client stays
		t.Fatal(err)
	}
	return Adapt(server.Client(t))
}

func frozenServer(t *testing.T) redis.UniversalClient {
	server := redistest.Start(t)
	server.Pause()
	return server.Client(t)
}

// exhaustedPool returns a client whose only connection is in use.
func exhaustedPool(one func(*redis.Options)) func(t *testing.T) redis.UniversalClient {
	return func(t *testing.T) redis.UniversalClient {
		client := redistest.Shared(t).Client(t, one, func(o *redis.Options) { o.PoolTimeout = 10 * time.Millisecond })
		conn := client.Conn()
		t.Cleanup(func() { _ = conn.Close() })
		if err := conn.Ping(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		return client
	}
}

func closedClient(t *testing.T) redis.UniversalClient {
	client := redis.NewClient(&redis.Options{Addr: refusing(t)})
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	return client
}

func noSentinel(t *testing.T) redis.UniversalClient {
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{refusing(t)}, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func noCluster(t *testing.T) redis.UniversalClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{refusing(t)}, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// dial makes a client of a server that is not Redis.
func dial(listen func(t *testing.T) string, change ...func(*redis.Options)) func(t *testing.T) redis.UniversalClient {
	return func(t *testing.T) redis.UniversalClient {
		options := &redis.Options{
			Addr:                  listen(t),
			ContextTimeoutEnabled: true,
			MaxRetries:            -1,
			DialerRetries:         1,
			DisableIdentity:       true,
		}
		for _, f := range change {
			f(options)
		}
		client := redis.NewClient(options)
		t.Cleanup(func() { _ = client.Close() })
		return Adapt(client)
	}
}

func dialTLS(listen func(t *testing.T) string) func(t *testing.T) redis.UniversalClient {
	return dial(listen, func(o *redis.Options) { o.TLSConfig = &tls.Config{ServerName: "redis"} })
}

func webServer(t *testing.T) string {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// listen accepts connections, hands each to serve, and keeps them open until the test ends.
func listen(t *testing.T, serve func(net.Conn)) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			go serve(conn)
		}
	}()
	return listener.Addr().String()
}

func silent(t *testing.T) string { return listen(t, func(net.Conn) {}) }

func hangingUp(t *testing.T) string { return listen(t, func(conn net.Conn) { _ = conn.Close() }) }

// turningAway says a line to every client that connects, and closes the connection.
func turningAway(line string) func(t *testing.T) string {
	return func(t *testing.T) string {
		return listen(t, func(conn net.Conn) { _, _ = fmt.Fprint(conn, line, "\r\n"); _ = conn.Close() })
	}
}

// greeting sends a line to every client that connects, before the client says anything.
func greeting(line string) func(t *testing.T) string {
	return func(t *testing.T) string {
		return listen(t, func(conn net.Conn) { _, _ = fmt.Fprint(conn, line, "\r\n") })
	}
}

// answering gives the same answer to every command.
func answering(line string) func(t *testing.T) string {
	return func(t *testing.T) string {
		return listen(t, func(conn net.Conn) {
			for r := bufio.NewReader(conn); ; {
				if err := skipCommand(r); err != nil {
					return
				}
				_, _ = fmt.Fprint(conn, line, "\r\n")
			}
		})
	}
}

// skipCommand skips one command, such as "*2\r\n$4\r\nPING\r\n...".
func skipCommand(r *bufio.Reader) error {
	head, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	words, err := strconv.Atoi(strings.Trim(head, "*\r\n"))
	for range words {
		size, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		bytes, err := strconv.Atoi(strings.Trim(size, "$\r\n"))
		if err != nil {
			return err
		}
		if _, err := r.Discard(bytes + 2); err != nil {
			return err
		}
	}
	return err
}

// refusing returns an address where nobody listens. No other test can be given this port in the meantime.
func refusing(*testing.T) string { return "127.0.0.1:1" }
