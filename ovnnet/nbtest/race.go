package nbtest

import (
	"fmt"
)

// Sprint is fmt.Sprintf.
func Sprint(format string, args ...any) string { return fmt.Sprintf(format, args...) }
