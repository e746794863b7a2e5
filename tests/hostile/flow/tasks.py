"""All tasks, in three equal classes."""

from tests.hostile.flow import tasks_outside, tasks_service, tasks_user

TASKS = (*tasks_user.TASKS, *tasks_service.TASKS, *tasks_outside.TASKS)
