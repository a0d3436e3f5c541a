package nasa_test

import (
	"errors"
	"io"
	"testing"

	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/accesslog"
	"github.com/tierlimit/tierlimit/cmd/tierlimit/internal/nasa"
)

// The log has the numbers that the README next to it states.
func TestLogIsWhatItsReadmeSays(t *testing.T) {
	log, err := accesslog.NewReader(nasa.Open())
	if err != nil {
		t.Fatal(err)
	}
	requests, hosts := 0, map[string]bool{}
	var first, last int64
	for {
		request, err := log.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		requests++
		hosts[request.Host] = true
		last = request.Time.Unix()
		if first == 0 {
			first = last
		}
	}
	if requests != 30969 || len(hosts) != 2365 || log.BadLines() != 0 {
		t.Errorf("%d requests from %d hosts, %d bad lines; want 30969 from 2365, 0 bad",
			requests, len(hosts), log.BadLines())
	}
	if first != 807256800 || last != 807303121 {
		t.Errorf("runs from %d to %d, want 807256800 (06:00:00) to 807303121 (18:52:01)", first, last)
	}
}
