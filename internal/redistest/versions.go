package redistest

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/lua"
)

// HasFunctions reports whether the servers under test have function libraries, which came with Redis 7.
func HasFunctions(tb testing.TB) bool {
	tb.Helper()
	return Shared(tb).Client(tb).FunctionList(context.Background(), redis.FunctionListQuery{}).Err() == nil
}

// NeedFunctions skips a test of function libraries if the servers under test have none.
func NeedFunctions(tb testing.TB) {
	tb.Helper()
	if !HasFunctions(tb) {
		tb.Skip("the server under test has no function libraries")
	}
}

// decideDigest names the decision script in EVALSHA.
var decideDigest = []byte(redis.NewScript(lua.DecideScript()).Hash())

// RunsDecisions reports whether a command, as it is written to a connection, runs the decision script: as a function,
// or by EVALSHA on a server without functions.
func RunsDecisions(written []byte) bool {
	return bytes.Contains(written, []byte("\r\nfcall\r\n")) || bytes.Contains(written, decideDigest)
}

// DecisionCalls returns how often a server has been asked to run the decision script. Without functions, this includes
// the fleet's script, which each limiter runs about once a second.
func DecisionCalls(tb testing.TB, client *redis.Client) int {
	tb.Helper()
	command := "evalsha"
	if HasFunctions(tb) {
		command = "fcall"
	}
	stats, err := client.Info(context.Background(), "commandstats").Result()
	if err != nil {
		tb.Fatalf("redistest: the calls of a server: %v", err)
	}
	_, stat, called := strings.Cut(stats, "cmdstat_"+command+":calls=")
	if !called {
		return 0
	}
	calls, _, _ := strings.Cut(stat, ",")
	n, err := strconv.Atoi(calls)
	if err != nil {
		tb.Fatalf("redistest: %s was called %q times", command, calls)
	}
	return n
}

// expireTime is PEXPIRETIME for Redis 6.2. What is left counts from the millisecond in which the server looks, so the
// script looks again if the next one has begun meanwhile.
var expireTime = redis.NewScript(`
	local function now()
		local t = redis.call('TIME')
		return t[1] * 1000 + math.floor(t[2] / 1000)
	end
	while true do
		local before, left = now(), redis.call('PTTL', KEYS[1])
		if left < 0 then
			return left
		elseif now() == before then
			return before + left
		end
	end`)

// ExpireTime returns when a key expires, from the Unix epoch on in whole milliseconds; -1 if it never expires, and -2 if
// there is no such key.
func ExpireTime(tb testing.TB, client *redis.Client, key string) time.Duration {
	tb.Helper()
	at, err := client.PExpireTime(context.Background(), key).Result()
	if err != nil && redis.HasErrorPrefix(err, "unknown command") {
		var ms int64
		ms, err = expireTime.Run(context.Background(), client, []string{key}).Int64()
		if at = time.Duration(ms); ms > 0 {
			at = time.Duration(ms) * time.Millisecond
		}
	}
	if err != nil {
		tb.Fatalf("redistest: when %q expires: %v", key, err)
	}
	return at
}
