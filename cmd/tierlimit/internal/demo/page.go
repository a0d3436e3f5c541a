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

// viewers is how many pages are updated at once.
const viewers = 16

// longestForm is how many bytes a form may send.
const longestForm = 4 << 10

// shown is what the page shows.
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
	Last      int64 // the fullest window that was judged last
	Minute    int64 // and the fullest of the last minute
	Worst     int64 // and of all
	Allowed   int64
	Exact     int64 // what the exact log would have allowed
	LeftOut   int
	Failed    int
	LastError string
	Top       int // of the instances' charts
}

// member is an instance, with what it decided in the last second.
type member struct {
	Member
	Tiers  []tierCount
	Denied int
	Chart  chart
}

// tierCount is what a tier admitted in the last second.
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
				if limit.Tier(tier) != limit.TierLocal { // which only denies
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

// Handler serves the demo's page, and under instance/1/ and so on the instances' live
// pages. source and redis say where requests come from, and which Redis it is.
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
		_ = write(w, "page") // fails when the client has gone
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

// act does what a button says: cut or restore an instance or all, or change the speed.
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

// setCuts reads "cut" or "restore", which is the number of an instance or "all".
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
