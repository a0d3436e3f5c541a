package livepage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/tierlimit/tierlimit/internal/inspect"
	"github.com/tierlimit/tierlimit/limit"
)

// asked is a question about a key, and its answer.
type asked struct {
	Rule, Key, Cost, Limit string // as the form sent them
	Name                   shownKey
	Under                  inspect.Rule // the rule with the limit that applies to the key
	Whose                  string       // where that limit is from
	Answer                 *limit.Decision
	Reset                  bool // the key was reset
	Error                  string
}

// OwnUnknown reports whether the answer is about the rule's own limit because no limit of the key's own
// is known.
func (a asked) OwnUnknown() bool { return a.Whose == rulesOwn }

// serveKey answers a question about a key's state, or resets the key. It takes POST requests, although
// a question changes nothing: addresses end up in logs, where keys should not.
func (p *Page) serveKey(w http.ResponseWriter, r *http.Request) {
	if err := p.sameOrigin.Check(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, longestForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, fmt.Sprintf("reading the form: %v", err), http.StatusBadRequest)
		return
	}
	a := asked{Rule: r.PostForm.Get("rule"), Key: r.PostForm.Get("key"), Cost: r.PostForm.Get("cost"), Limit: r.PostForm.Get("limit")}
	reset := r.PostForm.Get("do") == "reset"
	if reset && !p.allowReset {
		http.Error(w, "this page is read-only: livepage.AllowReset is not set", http.StatusForbidden)
		return
	}
	status := http.StatusOK
	if err := p.ask(r.Context(), &a); err != nil {
		status = http.StatusBadRequest
		if errors.Is(err, limit.ErrClosed) {
			status = http.StatusServiceUnavailable
		}
		a.Error = err.Error()
	} else if reset {
		// The question had an answer, so that an error is no mistake of the person: Redis cannot be reached.
		if err := p.reset(r.Context(), &a); err != nil {
			status, a.Error, a.Answer = http.StatusServiceUnavailable, err.Error(), nil
		}
	}
	p.write(w, status, a)
}

// reset resets the key of a question that has been answered, and answers it again.
func (p *Page) reset(ctx context.Context, a *asked) error {
	key, err := parseKey(a.Key)
	if err != nil {
		return err
	}
	if err := a.Under.Reset(ctx, key); err != nil {
		return err
	}
	a.Reset = true
	return p.ask(ctx, a)
}

func (p *Page) ask(ctx context.Context, a *asked) error {
	key, err := parseKey(a.Key)
	if err != nil {
		return err
	}
	cost := int64(1)
	if a.Cost != "" {
		if cost, err = strconv.ParseInt(a.Cost, 10, 64); err != nil {
			return fmt.Errorf("the cost %q is not a whole number", a.Cost)
		}
	}
	rule, err := p.ruleOf(a, key)
	if err != nil {
		return err
	}
	a.Name, a.Under = p.name(key), rule
	d, err := rule.Peek(ctx, key, cost)
	if err != nil {
		return err
	}
	a.Answer = &d
	return nil
}

// The values of asked.Whose: where the limit of an answer is from.
const (
	asAsked  = "the limit that was entered"
	heldTo   = "the last limit that this process used for the key"
	rulesOwn = "the rule’s own limit"
)

// ruleOf returns the rule with the limit that applies to the key. Only the program knows which key has
// a limit of its own. So the limit is the one in the question or, without one, the last that this
// process applied to the key.
func (p *Page) ruleOf(a *asked, key string) (inspect.Rule, error) {
	rule, err := p.rule(a.Rule)
	if err != nil {
		return inspect.Rule{}, err
	}
	if a.Limit != "" {
		l, err := limit.Parse(a.Limit)
		if err != nil {
			return inspect.Rule{}, err
		}
		a.Whose = asAsked
		return rule.WithLimit(l)
	}
	if own, ok := rule.OwnLimit(key); ok {
		a.Whose = heldTo
		return rule.WithLimit(own)
	}
	a.Whose = rulesOwn
	return rule, nil
}

func (p *Page) rule(name string) (inspect.Rule, error) {
	for _, r := range p.inside.Snapshot().Rules {
		if r.Name == name {
			return r, nil
		}
	}
	return inspect.Rule{}, fmt.Errorf("there is no rule %q", name)
}
