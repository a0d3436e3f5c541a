package demo

import (
	_ "embed" // for the page
	"fmt"
	"html/template"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tierlimit/tierlimit/internal/live"
	"github.com/tierlimit/tierlimit/limit"
)

var (
	//go:embed page.html
	source string
	//go:embed demo.css
	style []byte

	templates = template.Must(template.New("").Parse(source))
)

// viewers is the number of pages that are updated at once.
const viewers = 16

// longestForm is the largest number of bytes that a form may send.
const longestForm = 4 << 10

// shown has the values that the page shows.
type shown struct {
	Limit     limit.Limit
	Source    string
	Redis     string
	Speed     int64
	Speeds    []int64
	Recorded  string // the time of the trace
	Members   []member
	Healthy   int
	Cut       []int
	Fullest   chart
	Last      int64 // units in the fullest window of the second that was judged last
	Minute    int64 // the same for the last minute
	Worst     int64 // the same for the whole time
	Allowed   int64
	Exact     int64 // what the exact log would have allowed
	LeftOut   int
	Failed    int
	LastError string
	Top       int // upper end of the scale of the instances' charts
}

// member is an instance, with the decisions that it made in the last second.
type member struct {
	Member
	Tiers  []tierCount
	Denied int
	Chart  chart
}

// tierCount is the number of requests that a tier admitted in the last second.
type tierCount struct {
	Tier    limit.Tier
	Allowed int
}

func (d *Demo) shown() shown {
	s := shown{Limit: d.limit, Speed: d.speed.Load(), Speeds: []int64{1, 10, 60, 120, 300, 600}}
	if !slices.Contains(s.Speeds, s.Speed) {
		s.Speeds = append(s.Speeds, s.Speed)
		slices.Sort(s.Speeds)
	}
	members := d.Members()
	d.mu.Lock()
	defer d.mu.Unlock()
	s.Recorded = time.UnixMicro(d.recorded).UTC().Format("2 January 2006, 15:04")
	scale := mostOf(d.past)
	s.Top = scale.allowed
	for i, m := range members {
		shownMember := member{Member: m, Chart: decisionsChart(d.past, i, scale)}
		if len(d.past) > 0 {
			for tier, n := range d.past[len(d.past)-1].counts[i] {
				shownMember.Denied += n.denied
				if limit.Tier(tier) != limit.TierLocal { // this tier only denies
					shownMember.Tiers = append(shownMember.Tiers, tierCount{limit.Tier(tier), n.allowed})
				}
			}
		}
		s.Members = append(s.Members, shownMember)
		if !m.Degraded {
			s.Healthy++
		}
		if m.Cut {
			s.Cut = append(s.Cut, m.Number)
		}
	}
	s.Fullest = fullestChart(d.past, d.limit.Quota())
	for _, t := range d.past {
		s.Last = t.fullest
		s.Minute = max(s.Minute, t.fullest)
	}
	s.Worst, s.Allowed, s.Exact = d.judge.worst.Max(), d.judge.allowed, d.judge.exactAllowed
	s.LeftOut, s.Failed = d.leftOut, d.failed
	if d.lastErr != nil {
		s.LastError = d.lastErr.Error()
	}
	return s
}

// Handler serves the demo's page, and the instances' live pages under instance/1/ and so on. source
// says where the requests come from, and redis which Redis is used.
func (d *Demo) Handler(source, redis string) http.Handler {
	streams := live.NewStreams(viewers, time.Second)
	write := func(w io.Writer, name string) error {
		s := d.shown()
		s.Source, s.Redis = source, redis
		return templates.ExecuteTemplate(w, name, s)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = write(w, "page") // fails only if the client has gone
	})
	mux.HandleFunc("POST /{$}", d.act)
	mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) {
		streams.Serve(w, r, d.done, func(w io.Writer) error { return write(w, "live") })
	})
	mux.HandleFunc("GET /demo.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		_, _ = w.Write(style)
	})
	for i, in := range d.fleet {
		mux.Handle(fmt.Sprintf("/instance/%d/", i+1), in.page)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if !live.Asset(w, r) {
			http.NotFound(w, r)
		}
	})
	// Other sites must not press the buttons.
	protected := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		live.Secure(w)
		if !d.hosts.Accept(w, r, "-host") {
			return
		}
		protected.ServeHTTP(w, r)
	})
}

// act does what the pressed button says: it cuts or restores one instance or all, or changes the speed.
func (d *Demo) act(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, longestForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, fmt.Sprintf("reading the form: %v", err), http.StatusBadRequest)
		return
	}
	var err error
	if speed := r.PostForm.Get("speed"); speed != "" {
		err = d.setSpeed(speed)
	} else {
		err = d.setCuts(r.PostForm)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Location", "./")
	w.WriteHeader(http.StatusSeeOther)
}

func (d *Demo) setSpeed(s string) error {
	speed, err := strconv.Atoi(s)
	if err != nil {
		return fmt.Errorf("the speed %q is not a whole number", s)
	}
	return d.SetSpeed(speed)
}

// setCuts reads the form field "cut" or "restore". Its value is the number of an instance or "all".
func (d *Demo) setCuts(form map[string][]string) error {
	for i, do := range []string{"restore", "cut"} {
		which := strings.Join(form[do], " ")
		switch number, err := strconv.Atoi(which); {
		case which == "":
		case which == "all":
			for instance := range d.fleet {
				if err := d.SetCut(instance, i == 1); err != nil {
					return err
				}
			}
			return nil
		case err != nil:
			return fmt.Errorf("%w: %q", errNoInstance, which)
		default:
			return d.SetCut(number-1, i == 1)
		}
	}
	return fmt.Errorf("nothing to do: neither cut, restore nor speed is given")
}
