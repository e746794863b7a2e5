"""Mail, files, payments, web and issue tracker of one user, each with the tools of an assistant."""
