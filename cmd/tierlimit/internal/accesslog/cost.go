package accesslog

import "fmt"

// CostKind says how many units a request takes.
type CostKind string

// The kinds of costs.
const (
	CostRequests  CostKind = "requests" // one, unless the log states a cost
	CostBytes     CostKind = "bytes"    // the size of the response
	CostKilobytes CostKind = "kB"       // the size of the response in units of 1,000 bytes, rounded up
)

// ParseCostKind reads "requests", "bytes" or "kB".
func ParseCostKind(s string) (CostKind, error) {
	switch k := CostKind(s); k {
	case CostRequests, CostBytes, CostKilobytes:
		return k, nil
	}
	return "", fmt.Errorf("cost %q: must be one of %s, %s, %s", s, CostRequests, CostBytes, CostKilobytes)
}

// Of returns the request's cost, at least 1.
func (k CostKind) Of(r Request) int64 {
	switch k {
	case CostBytes:
		return max(1, r.Bytes)
	case CostKilobytes:
		return max(0, r.Bytes-1)/1000 + 1
	}
	return max(1, r.Cost)
}
