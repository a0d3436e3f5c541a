// Command upstream is a job that spends the daily quota of a service it calls: 60 units a day, of which
// a list costs 1 and a detail 5. One worker per region spends it at the same time, as if each were a
// process of its own. Together they never use more than the quota.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/examples/internal/connect"
	"github.com/tierlimit/tierlimit/httplimit"
	"github.com/tierlimit/tierlimit/limit"
)

const dailyQuota = 60

func main() {
	redis := flag.String("redis", "", "URL of a Redis; without it, a stand-in inside the process")
	flag.Parse()

	limiter, stop, err := connect.Limiter(*redis)
	if err != nil {
		log.Fatal(err)
	}
	defer stop()
	// Quotas that are sold by the day begin at midnight in some time zone.
	quota, err := limiter.Rule("weather-api", limit.PerCalendar(dailyQuota, limit.CalendarDay, time.UTC))
	if err != nil {
		log.Fatal(err)
	}
	transport, err := httplimit.NewTransport(nil, quota,
		httplimit.TransportCost(cost),
		httplimit.TransportKey(func(*http.Request) string { return "our account" }),
		httplimit.MaxWait(time.Second), // a job need not wait for midnight: it runs again
	)
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport}

	service, spent := weatherService()
	defer service.Close()
	var workers sync.WaitGroup
	for _, region := range []string{"north", "south", "west"} {
		workers.Go(func() { fmt.Println(work(client, service.URL, region)) })
	}
	workers.Wait()
	fmt.Printf("the service counted %d of %d units\n", spent.Load(), dailyQuota)
}

// cost returns what the service counts for a call.
func cost(r *http.Request) int64 {
	if strings.HasPrefix(r.URL.Path, "/detail/") {
		return 5
	}
	return 1
}

// work fetches a region's list, and details until the quota is used up.
func work(client *http.Client, service, region string) string {
	if err := get(client, service+"/list/"+region); err != nil {
		return region + ": no list: " + err.Error()
	}
	for i := 0; ; i++ {
		err := get(client, fmt.Sprintf("%s/detail/%s/%d", service, region, i))
		var notSent *httplimit.NotSentError
		switch {
		case errors.As(err, &notSent):
			at := time.Now().Add(notSent.RetryAfter).UTC().Round(time.Second)
			return fmt.Sprintf("%s: %d details; goes on at %v", region, i, at.Format(time.RFC3339))
		case err != nil:
			return fmt.Sprintf("%s: %d details: %v", region, i, err)
		}
	}
}

func get(client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// weatherService stands for another company's service. It counts the units of the calls that it gets.
func weatherService() (*httptest.Server, *atomic.Int64) {
	var spent atomic.Int64
	return httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		spent.Add(cost(r))
	})), &spent
}
