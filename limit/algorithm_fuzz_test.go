package limit

import "testing"

// Text that ParseAlgorithm accepts is a valid algorithm, which is equal after being written and parsed again.
func FuzzParseAlgorithm(f *testing.F) {
	for _, s := range []string{"", "auto", "sliding-log:zset", "sliding-counter:k=60,estimate", "gcra", "fixed-window", "sliding-counter:k=", "gcra:k=1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAlgorithm(s)
		if err != nil {
			return
		}
		if err := a.Validate(); err != nil {
			t.Errorf("%q parsed to an invalid algorithm: %v", s, err)
		}
		if again, err := ParseAlgorithm(a.String()); err != nil || again != a {
			t.Errorf("%q parsed to %v, which reads as %v, %v", s, a, again, err)
		}
	})
}
