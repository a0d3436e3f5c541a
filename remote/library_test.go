package remote

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/lua"
)

// callsOf reports whether a server was asked to run a command.
func callsOf(t *testing.T, client *redis.Client, command string) bool {
	t.Helper()
	return client.InfoMap(context.Background(), "commandstats").Val()["Commandstats"]["cmdstat_"+command] != ""
}

// A user who may load functions, but may not access the limiter's keys, loads a library of the limiter's name
// first, or another library with a function of that name. The limiter does not call that function, and reports it
// once. The script runs by EVALSHA instead, whose digest Redis computes itself.
func TestAForeignLibraryIsNotCalled(t *testing.T) {
	t.Parallel()
	redistest.NeedFunctions(t)
	check := func(t *testing.T, library string, client redis.UniversalClient, nodes ...*redistest.Server) {
		script := NewScript(client)
		name := script.library.call[1].(string)
		library = cmp.Or(library, name)
		for _, node := range nodes {
			if err := node.Client(t).FunctionLoad(context.Background(), "#!lua name="+library+"\nredis.register_function('"+name+"', function(keys) redis.call('SET', keys[1], 'theirs') return '' end)").Err(); err != nil {
				t.Fatal(err)
			}
		}
		var told []error
		script.OnForeignLibrary(func(err error) { told = append(told, err) })
		rule := newRule(t, limit.PerHour(10), limit.GCRA())
		for range 3 {
			for _, r := range runAll(t, script, []Entry{{Key: "{a}", Rule: rule, Cost: 1, Operation: lua.Peek}, {Key: "{b}", Rule: rule, Cost: 1, Operation: lua.Peek}, {Key: "{c}", Rule: rule, Cost: 1, Operation: lua.Peek}}) {
				if r.Status != Allowed || r.Err != nil {
					t.Errorf("%+v", r)
				}
			}
		}
		for _, node := range nodes {
			if callsOf(t, node.Client(t), "fcall") {
				t.Error("it was called")
			}
		}
		if len(told) != 1 || !errors.Is(told[0], ErrForeignLibrary) {
			t.Errorf("told %v", told)
		}
	}
	t.Run("one node", func(t *testing.T) {
		server := redistest.Start(t)
		check(t, "", server.Client(t), server)
	})
	t.Run("a function of another library", func(t *testing.T) {
		server := redistest.Start(t)
		check(t, "other", server.Client(t), server)
	})
	t.Run("cluster, on one of three", func(t *testing.T) {
		cluster := redistest.StartCluster(t, 3)
		check(t, "", cluster.Client(t), cluster.Nodes()[1])
	})
}

// A library that another instance has loaded is compared once, and costs no trip afterwards. An instance that is
// not permitted to compare it does not call it.
func TestALibraryIsComparedOnce(t *testing.T) {
	redistest.NeedFunctions(t)
	server := redistest.Start(t)
	admin, ctx := server.Client(t), context.Background()
	rule := newRule(t, limit.PerHour(1000), limit.GCRA())
	decide(t, NewScript(admin), "k", rule, 0, 1)
	script := NewScript(server.Client(t))
	for range 5 {
		decide(t, script, "k", rule, 0, 1)
	}
	stats := admin.InfoMap(ctx, "commandstats").Val()["Commandstats"]
	if list := stats["cmdstat_function|list"]; !strings.HasPrefix(list, "calls=2,") || !strings.HasPrefix(stats["cmdstat_fcall"], "calls=6,") || !strings.HasPrefix(stats["cmdstat_function|load"], "calls=1,") {
		t.Errorf("%v", stats)
	}

	if err := admin.ACLSetUser(ctx, "limiter", "on", ">secret", "~*", "+@all", "-function|list").Err(); err != nil {
		t.Fatal(err)
	}
	script = NewScript(server.Client(t, func(o *redis.Options) { o.Username, o.Password = "limiter", "secret" }))
	decide(t, script, "k", rule, 0, 1)
	decide(t, script, "k", rule, 0, 1)
	if stats := admin.InfoMap(ctx, "commandstats").Val()["Commandstats"]; !strings.HasPrefix(stats["cmdstat_fcall"], "calls=6,") {
		t.Errorf("it was called by who could not compare it: %v", stats)
	}
}

// Law 7: if the server closes the connection instead of answering when the library is looked for, as where the answer is
// larger than the server's limit for a client, the library is not looked for in each run.
func TestLaw7ALibraryThatCannotBeReadIsNotReadInEachRun(t *testing.T) {
	t.Parallel()
	redistest.NeedFunctions(t)
	admin := redistest.Start(t, "--client-output-buffer-limit", "normal 100kb 0 0").Client(t)
	rule := newRule(t, limit.PerHour(1000), limit.GCRA())
	decide(t, NewScript(admin), "k", rule, 0, 1) // it loads the library
	script := NewScript(admin)
	for range 20 {
		decide(t, script, "k", rule, 0, 1)
	}
	looks := func() string {
		return admin.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]["cmdstat_function|list"]
	}
	if list := looks(); !strings.HasPrefix(list, "calls=2,") { // one look of each Script
		t.Errorf("the library was looked for again in later runs: %s", list)
	}

	// It is looked for again later, and used if it can be read.
	if err := admin.ConfigSet(t.Context(), "client-output-buffer-limit", "normal 0 0 0").Err(); err != nil {
		t.Fatal(err)
	}
	script.lookFrom.Store(localTime())
	decide(t, script, "k", rule, 0, 1)
	if script.known.Load() != &script.library {
		t.Error("the library is not used once it can be read")
	}
}

// If the server has lost the library and cannot load it now, the script runs as a function again as soon as it can.
func TestALibraryIsLoadedOnceItCanBe(t *testing.T) {
	t.Parallel()
	redistest.NeedFunctions(t)
	set := func(name, value string) func(t *testing.T, admin *redis.Client) {
		return func(t *testing.T, admin *redis.Client) {
			if err := admin.ConfigSet(t.Context(), name, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	follow := func(host, port string) func(t *testing.T, admin *redis.Client) {
		return func(t *testing.T, admin *redis.Client) {
			if err := admin.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		fault, end func(t *testing.T, admin *redis.Client)
	}{
		"NOREPLICAS": {set("min-replicas-to-write", "1"), set("min-replicas-to-write", "0")},
		"OOM":        {set("maxmemory", "1"), set("maxmemory", "0")},
		"READONLY":   {follow("127.0.0.1", "1"), follow("NO", "ONE")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			admin := redistest.Start(t).Client(t)
			script, rule := NewScript(admin), newRule(t, limit.PerHour(1000), limit.GCRA())
			decide(t, script, "k", rule, 0, 1)
			if err := admin.FunctionFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			c.fault(t, admin)
			for range 2 {
				_, err := script.Run(t.Context(), []Entry{{Key: "k", Rule: rule, Cost: 1}}, 0)
				if err == nil || KindOf(err) != Unavailable || !strings.Contains(err.Error(), name) {
					t.Fatalf("%v, want %s", err, name)
				}
			}
			c.end(t, admin)
			if err := admin.ConfigResetStat(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			decide(t, script, "k", rule, 0, 1)
			if !callsOf(t, admin, "fcall") {
				t.Error("the library is not used any more")
			}
		})
	}
}

// A user who loses all rights for a while, as when they are set anew, runs the script as a function afterwards, as before.
// A user who may run the script by EVALSHA only does that from then on, as does one who may no longer load the library
// when the server has lost it.
func TestLosingAllRightsIsNotLosingTheLibrary(t *testing.T) {
	t.Parallel()
	redistest.NeedFunctions(t)
	for _, c := range []struct {
		lost          string
		refused, back bool
	}{{"-@all", true, true}, {"-fcall", false, false}, {"-function", false, false}} {
		admin := redistest.Start(t).Client(t)
		may := func(right string) {
			t.Helper()
			if err := admin.Do(t.Context(), "ACL", "SETUSER", "limiter", "on", ">secret", "~*", right).Err(); err != nil {
				t.Fatal(err)
			}
			if err := admin.ConfigResetStat(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		may("+@all")
		o := *admin.Options()
		o.Username, o.Password = "limiter", "secret"
		client := redis.NewClient(&o)
		t.Cleanup(func() { _ = client.Close() })
		script, rule := NewScript(client), newRule(t, limit.PerHour(1000), limit.GCRA())
		decide(t, script, "k", rule, 0, 1)
		if err := admin.FunctionFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		may(c.lost)
		for range 2 {
			if _, err := script.Run(t.Context(), []Entry{{Key: "k", Rule: rule, Cost: 1}}, 0); (err != nil) != c.refused || err != nil && KindOf(err) != Auth {
				t.Fatalf("with %s: %v", c.lost, err)
			}
		}
		may("+@all")
		decide(t, script, "k", rule, 0, 1)
		if callsOf(t, admin, "fcall") != c.back {
			t.Errorf("after %s the script runs as a function: %v, want %v", c.lost, !c.back, c.back)
		}
	}
}

// Law 7: a run that waits for another run to load the library waits no longer than its own time. Such a time-out
// does not mean that the server cannot have a library.
func TestLaw7LoadingTheLibraryTakesNoLongerThanTheContext(t *testing.T) {
	redistest.NeedFunctions(t)
	script := NewScript(redistest.Start(t).Client(t))
	script.known.Store(&script.library) // the library is missing nevertheless, as after FUNCTION FLUSH
	began, hung := make(chan struct{}), make(chan struct{})
	defer close(hung)
	go script.load.Do(script.library.verb, func() (any, error) {
		close(began)
		<-hung
		return nil, nil
	})
	<-began
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	rule := newRule(t, limit.PerHour(10), limit.GCRA())
	failed := make(chan error)
	go func() {
		_, err := script.Run(ctx, []Entry{{Key: "k", Rule: rule, Cost: 1}}, 0)
		failed <- err
	}()
	select {
	case err := <-failed:
		if err == nil || KindOf(err) != Timeout || script.known.Load() == &script.script {
			t.Errorf("%v; without the library from now on: %v", err, script.known.Load() == &script.script)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("not over after 20 s")
	}
}

// Law 12: Wait also waits for a loading that takes longer than the runs that wait for it.
func TestLaw12LoadingEndsWithTheScript(t *testing.T) {
	script := NewScript(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})) // this address is never contacted
	for _, f := range []*form{&script.library, &script.script} {
		synctest.Test(t, func(t *testing.T) {
			script.Wait()
			hung, waited := make(chan struct{}), false
			go script.load.Do(f.verb, func() (any, error) { <-hung; return nil, nil })
			synctest.Wait()
			go func() { script.Wait(); waited = true }()
			synctest.Wait()
			if waited {
				t.Error("it is not waited for")
			}
			close(hung)
			synctest.Wait()
			if !waited {
				t.Error("its end is not noticed")
			}
		})
	}
}
