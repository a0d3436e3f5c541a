package rulesfile

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tierlimit/tierlimit/internal/option"
	"github.com/tierlimit/tierlimit/internal/regularfile"
	"github.com/tierlimit/tierlimit/limit"
	"github.com/tierlimit/tierlimit/tiered"
)

// Rules are the rules of a file. They are safe for concurrent use.
type Rules struct {
	limiter *tiered.Limiter
	path    string
	logger  *slog.Logger
	onLoad  func(error) // may be nil
	every   time.Duration

	loading sync.Mutex // held while a file is loaded; guards tried and pending
	tried   sighting   // the newest file that was put in force or refused
	pending *sighting  // read once and not tried yet; may be nil

	inForce atomic.Pointer[inForce]
	mu      sync.Mutex // guards used and changes of inForce
	used    []string   // names of the rules that the program uses
}

// inForce maps the names of the rules in force to their terms. It is immutable.
type inForce map[string]*terms

// terms are the rules of one name: the rule for most keys, and the rules with other limits, by plan and
// by key.
type terms struct {
	rule  *tiered.Rule
	plans map[string]*tiered.Rule
	keys  map[string]*tiered.Rule
}

// Load reads a file, and puts its rules in force on the limiter. The path must be that of a regular
// file, or of a link to one. The file has at most 256 kB of UTF-8 and 10,000 fields; a byte order mark
// at its beginning is ignored. Load does not watch the file: see [Rules.Watch] and [Rules.Reload]. If
// the program or another file already has a rule of the same name with other settings, the file is
// refused with a [tiered.ConflictError], at start or later.
//
// Errors wrap [ErrInvalidFile], [limit.ErrInvalidOption] or [limit.ErrClosed], or say why the file
// cannot be read. After an error, none of the file's rules is in force.
func Load(limiter *tiered.Limiter, path string, options ...Option) (*Rules, error) {
	r := &Rules{limiter: limiter, path: path, logger: slog.Default(), every: time.Second}
	if limiter == nil {
		return nil, option.Invalid("the limiter is nil")
	}
	if err := option.Apply(r, options); err != nil {
		return nil, err
	}
	r.inForce.Store(new(inForce))
	r.tried = see(path)
	if _, err := r.putInForce(r.tried); err != nil {
		return nil, err
	}
	limiter.SourceLoaded(path, nil)
	return r, nil
}

// Rule returns the rule with the given name. From then on, a file without that rule is refused, because
// the program needs it. The error wraps [limit.ErrInvalidRule].
func (r *Rules) Rule(name string) (*Rule, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if (*r.inForce.Load())[name] == nil {
		return nil, fmt.Errorf("%w: %s has no rule %q", limit.ErrInvalidRule, r.path, name)
	}
	if !slices.Contains(r.used, name) {
		r.used = append(r.used, name)
	}
	return &Rule{rules: r, name: name}, nil
}

// Reload loads the file now, for example on a signal. If it returns an error, see [Load], the rules in
// force do not change.
func (r *Rules) Reload() error {
	r.loading.Lock()
	defer r.loading.Unlock()
	return r.try(see(r.path))
}

// sighting is the result of reading the file once. Comparing two sightings shows whether the file has
// changed.
type sighting struct {
	text string
	err  error
}

func (s sighting) same(o sighting) bool {
	return s.text == o.text && fmt.Sprint(s.err) == fmt.Sprint(o.err)
}

// see reads the file, if it is regular and not too large. It follows the directories and links of the
// path as they are now.
func see(path string) sighting {
	text, err := regularfile.Read(path, maxBytes)
	switch {
	case err == nil:
		return sighting{text: string(text)}
	case errors.Is(err, regularfile.ErrNotRegular), errors.Is(err, regularfile.ErrTooLarge):
		err = fmt.Errorf("%w: %w", ErrInvalidFile, err)
	}
	return sighting{err: err}
}

// try puts the given file in force if it is valid, and reports the result. The caller must hold
// r.loading.
func (r *Rules) try(seen sighting) error {
	r.tried, r.pending = seen, nil
	rules, err := r.putInForce(seen)
	r.limiter.SourceLoaded(r.path, err)
	if err != nil {
		r.logger.Error("tierlimit: the rules file cannot be put in force; all rules stay as they were", "file", r.path, "error", err)
	} else {
		r.logger.Info("tierlimit: the rules file is in force", "file", r.path, "rules", rules)
	}
	if r.onLoad != nil {
		r.onLoad(err)
	}
	return err
}

// putInForce puts a file in force, as a whole or not at all. It returns the number of rules.
func (r *Rules) putInForce(seen sighting) (int, error) {
	if seen.err != nil {
		return 0, seen.err
	}
	file, err := read(r.path, []byte(seen.text))
	if err != nil {
		return 0, err
	}
	p := &problems{file: r.path}
	next := make(inForce, len(file.rules))
	var rules []*tiered.Rule
	for _, s := range file.rules {
		t, err := r.prepare(s, file, p)
		if errors.Is(err, limit.ErrClosed) {
			return 0, err
		}
		if t != nil {
			next[s.name] = t
			rules = append(rules, t.rule)
		}
	}
	if err := p.err(); err != nil {
		return 0, err
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range r.used {
		switch now, then := (*r.inForce.Load())[name], next[name]; {
		case then == nil:
			p.addf(file.at, "rule %q is missing, but the program uses it; to stop enforcing it, keep it with dry_run: true", name)
		case !sameCalls(now.rule.Limit(), then.rule.Limit()):
			p.addf(file.place(name), "rule %q cannot become %v while a program uses it as %v: "+notTheSameCalls, name, then.rule.Limit(), now.rule.Limit())
		}
	}
	if err := p.err(); err != nil {
		return 0, err
	}
	if err := r.limiter.PutInForceFrom(r.path, rules...); err != nil {
		if conflict, ok := errors.AsType[*tiered.ConflictError](err); ok {
			p.add(file.place(conflict.Refused.Name()), err)
			return 0, p.err()
		}
		return 0, err
	}
	for name, t := range next {
		if before := (*r.inForce.Load())[name]; before != nil {
			t.takeOver(before)
		}
	}
	r.inForce.Store(&next)
	return len(rules), nil
}

// takeOver has the rules that now apply to plans and keys take over from those that applied to them before. The only
// error would be that they are of another kind, and then there is nothing to take over.
func (t *terms) takeOver(before *terms) {
	stays := make(map[*tiered.Rule]bool) // rules of plans that other keys are still on
	for plan, old := range before.plans {
		rule := t.plans[plan]
		stays[old] = rule != nil
		_ = cmp.Or(rule, t.rule).TakeOver(old)
	}
	for key, old := range before.keys {
		if !stays[old] {
			_ = cmp.Or(t.keys[key], t.rule).TakeOver(old)
		}
	}
}
