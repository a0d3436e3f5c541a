// Command login protects passwords from being guessed. It allows 3 failures in 15 minutes per account
// and 10 per address, counted exactly. While Redis cannot be reached, nobody can log in.
package main

import (
	"crypto/subtle"
	"flag"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/tierlimit/tierlimit/examples/internal/connect"
	"github.com/tierlimit/tierlimit/httplimit"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen")
	redis := flag.String("redis", "", "URL of a Redis; without it, a stand-in inside the process")
	flag.Parse()

	limiter, stop, err := connect.Limiter(*redis)
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	strict := []tiered.RuleOption{tiered.Use(limit.SlidingLog()), tiered.OnOutage(tiered.Deny)}
	perAccount, err := limiter.Rule("login/account", limit.Per(3, 15*time.Minute), strict...)
	if err != nil {
		log.Fatal(err)
	}
	perAddress, err := limiter.Rule("login/address", limit.Per(10, 15*time.Minute), strict...)
	if err != nil {
		log.Fatal(err)
	}
	limits, err := httplimit.New(limiter,
		httplimit.Limit(perAccount, account, httplimit.Settle(failure)),
		httplimit.Limit(perAddress, httplimit.ClientAddress, httplimit.Settle(failure)),
		httplimit.Headers(httplimit.NoHeaders), // an attacker need not know what is left
	)
	if err != nil {
		log.Fatal(err)
	}

	mux := http.NewServeMux()
	mux.Handle("POST /login", limits(http.HandlerFunc(login)))
	log.Fatal(http.ListenAndServe(*addr, mux))
}

// account returns the account that somebody wants to log in to, however they write its name. Anyone can
// cause failures for another person's account, and so lock it. If locked accounts are worse than
// guessing, limit addresses only.
func account(r *http.Request) string {
	r.Body = http.MaxBytesReader(nil, r.Body, 10_000)
	return strings.ToLower(strings.TrimSpace(r.PostFormValue("user")))
}

// failure returns what an attempt costs in the end. One unit is reserved, and given back if the
// password was right.
func failure(_ *http.Request, response httplimit.Response) int64 {
	if response.Status == http.StatusOK {
		return 0
	}
	return 1
}

func login(w http.ResponseWriter, r *http.Request) {
	right := subtle.ConstantTimeCompare([]byte(r.PostFormValue("password")), []byte("open sesame")) == 1
	if !right {
		http.Error(w, "wrong user or password", http.StatusUnauthorized)
		return
	}
	fmt.Fprintln(w, "welcome")
}
